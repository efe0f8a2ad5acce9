{{/* weir's settings file. */}}

{{/* Returns the settings file: the value `settings`, and over it what the chart sets. */}}
{{- define "weir.settings" -}}
{{- mustMergeOverwrite (deepCopy .Values.settings) (include "weir.chartSettings" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* Returns the settings that the chart sets. */}}
{{- define "weir.chartSettings" -}}
rules:
{{- if eq .Values.rules.source "xds" }}
  source: xds
  xds:
    url: {{ quote .Values.rules.xds.url }}
    {{- with .Values.rules.xds.tls }}
    {{- if .enabled }}
    tls:
      {{- include "weir.clientTls" (list "xds" .) | nindent 6 }}
    {{- end }}
    {{- end }}
{{- else }}
  source: files
  paths: [/etc/weir/rules]
{{- end }}
{{- if include "weir.overlayConfigMap" . }}
  overlay: [/etc/weir/overlay]
{{- end }}
grpc:
  address: ":8081"
  {{- include "weir.serverTls" (list "grpc" .Values.tls.grpc) | nindent 2 }}
http:
  address: ":8080"
  {{- include "weir.serverTls" (list "http" .Values.tls.http) | nindent 2 }}
{{- if .Values.resp.enabled }}
resp:
  address: ":6380"
  {{- if .Values.resp.existingSecret }}
  password_file: /etc/weir/secrets/resp/password
  {{- end }}
  {{- include "weir.serverTls" (list "resp" .Values.tls.resp) | nindent 2 }}
{{- end }}
{{- with .Values.debug }}
{{- if .existingSecret }}
debug:
  {{- if .readTokenKey }}
  read_token_file: /etc/weir/secrets/debug/read-token
  {{- end }}
  {{- if .writeTokenKey }}
  write_token_file: /etc/weir/secrets/debug/write-token
  {{- end }}
  # Every client of a port on loopback is on the same machine.
  require_token: true
{{- end }}
{{- end }}
{{- if or .Values.controls.existingClaim (eq .Values.store.kind "disk") }}
controls:
  file: /var/lib/weir/controls.json
{{- end }}
metrics:
  prometheus:
    address: ":9090"
drain:
  delay: {{ .Values.drain.delay }}
  timeout: {{ .Values.drain.timeout }}
store:
  kind: {{ ternary "redis" .Values.store.kind (eq .Values.store.kind "bundled") }}
  on_failure: {{ .Values.store.onFailure }}
  replicas: {{ max 1 (include "weir.maxReplicas" . | int64) }}
  memory:
    max_keys: {{ .Values.store.memory.maxKeys | int64 }}
  {{- if eq .Values.store.kind "disk" }}
  disk:
    path: /var/lib/weir/counters
  {{- end }}
  {{- if eq .Values.store.kind "bundled" }}
  redis:
    url: {{ include "weir.name" (list . "store") }}:6379
    password_file: /etc/weir/secrets/redis/password
  {{- else if eq .Values.store.kind "redis" }}
  {{- with .Values.store.redis }}
  redis:
    url: {{ quote .url }}
    topology: {{ .topology }}
    {{- if .existingSecret }}
    password_file: /etc/weir/secrets/redis/password
    {{- end }}
    {{- if .tls.enabled }}
    tls:
      {{- include "weir.clientTls" (list "redis" .tls) | nindent 6 }}
    {{- end }}
    {{- if eq .topology "sentinel" }}
    sentinel:
      master_name: {{ quote .sentinel.masterName }}
      {{- if .sentinel.existingSecret }}
      password_file: /etc/weir/secrets/sentinel/password
      {{- end }}
    {{- end }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* Returns the TLS settings of a listener. Takes a list: `grpc`, `http` or `resp`, its values. */}}
{{- define "weir.serverTls" -}}
{{- $listener := index . 0 -}}
{{- with index . 1 -}}
{{- if .enabled -}}
tls:
  enabled: true
  cert: /etc/weir/tls/{{ $listener }}/tls.crt
  key: /etc/weir/tls/{{ $listener }}/tls.key
  {{- if .clientCaSecret }}
  client_ca: /etc/weir/tls/{{ $listener }}-client-ca/ca.crt
  {{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Returns the TLS settings of a client. Takes a list: the name in the paths of its secrets, its values. */}}
{{- define "weir.clientTls" -}}
{{- $name := index . 0 -}}
{{- with index . 1 -}}
enabled: true
{{- if .caSecret }}
ca: /etc/weir/tls/{{ $name }}-ca/ca.crt
{{- end }}
{{- if .clientSecret }}
cert: /etc/weir/tls/{{ $name }}-client/tls.crt
key: /etc/weir/tls/{{ $name }}-client/tls.key
{{- end }}
{{- end -}}
{{- end -}}
