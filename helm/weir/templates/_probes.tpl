{{/*
Returns a probe: its handler and its timings. Where HTTP has TLS, it runs `weir health` against the debug port of loopback, which a
flood of handshakes does not reach, and which needs no client certificate. Takes a list: the root context, the path, the timings.
*/}}
{{- define "weir.probe" -}}
{{- $path := index . 1 -}}
{{- if (index . 0).Values.tls.http.enabled -}}
exec:
  command: [/bin/weir, health, --url, "http://127.0.0.1:6070{{ $path }}"]
{{- else -}}
httpGet:
  path: {{ $path }}
  port: http
{{- end }}
{{ toYaml (index . 2) }}
{{- end -}}

{{/*
Returns host and port at which `helm test` asks weir: of the Service, or of the headless one if that has no HTTP. Empty: it cannot
ask, since neither has HTTP, or clients need a certificate.
*/}}
{{- define "weir.testAddress" -}}
{{- if not (and .Values.tls.http.enabled .Values.tls.http.clientCaSecret) -}}
{{- if include "weir.exposesHttp" . -}}
{{- include "weir.fullname" . }}.{{ include "weir.namespace" . }}.svc:{{ .Values.service.ports.http }}
{{- else if .Values.headlessService.enabled -}}
{{- include "weir.name" (list . "headless") }}.{{ include "weir.namespace" . }}.svc:8080
{{- end -}}
{{- end -}}
{{- end -}}
