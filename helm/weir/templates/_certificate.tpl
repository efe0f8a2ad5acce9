{{/* Returns `true` if a listener uses the certificate of cert-manager. */}}
{{- define "weir.certManagerUsed" -}}
{{- with .Values.tls -}}
{{- if and .certManager.enabled (or (and .grpc.enabled (not .grpc.secret)) (and .http.enabled (not .http.secret)) (and .resp.enabled (not .resp.secret))) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}
