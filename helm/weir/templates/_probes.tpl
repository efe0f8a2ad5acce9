{{/*
Returns the handler of a probe. Where clients need a certificate, which the kubelet does not have, it runs
`weir health` against the debug port of loopback. Takes a list: the root context, the path.
*/}}
{{- define "weir.probe" -}}
{{- $http := (index . 0).Values.tls.http -}}
{{- $path := index . 1 -}}
{{- if and $http.enabled $http.clientCaSecret -}}
exec:
  command: [/bin/weir, health, --url, "http://127.0.0.1:6070{{ $path }}"]
{{- else -}}
httpGet:
  path: {{ $path }}
  port: http
  {{- if $http.enabled }}
  scheme: HTTPS
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Returns `true` if `helm test` can ask weir: where HTTP needs a client certificate, it has none. */}}
{{- define "weir.testable" -}}
{{- if not (and .Values.tls.http.enabled .Values.tls.http.clientCaSecret) -}}
true
{{- end -}}
{{- end -}}
