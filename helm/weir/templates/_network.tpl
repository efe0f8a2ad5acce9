{{/* Ports: of Services, and those that network policies allow. */}}

{{/* Returns `true` if the Service has the port of HTTP. */}}
{{- define "weir.exposesHttp" -}}
{{- with .Values.service -}}
{{- if and .ports.http (or .exposeHttp (eq .type "ClusterIP")) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Returns the address families of a Service. */}}
{{- define "weir.ipFamilies" -}}
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Returns the ports of a Service that leads to weir. Takes a list: the root context, the ports of gRPC, HTTP (null: none) and the Redis
protocol.
*/}}
{{- define "weir.servicePorts" -}}
{{- $values := (index . 0).Values -}}
- name: grpc
  port: {{ index . 1 }}
  targetPort: grpc
  appProtocol: {{ $values.service.appProtocol | default (ternary "tls" "grpc" $values.tls.grpc.enabled) }}
{{- with index . 2 }}
- name: http
  port: {{ . }}
  targetPort: http
  appProtocol: {{ ternary "https" "http" $values.tls.http.enabled }}
{{- end }}
{{- if $values.resp.enabled }}
- name: resp
  port: {{ index . 3 }}
  targetPort: resp
  {{- /* Not redis: a proxy that understands Redis would not know the commands of weir. */}}
  appProtocol: {{ ternary "tls" "tcp" $values.tls.resp.enabled }}
{{- end }}
{{- end -}}

{{/* Returns the ports of the addresses in a URL, such as a:1,b:2 or rediss://a:1/0. Takes a list: the URL, the default port. */}}
{{- define "weir.ports" -}}
{{- $default := index . 1 -}}
{{- range splitList "," (index . 0) -}}
{{- $port := regexReplaceAll "^.*:([0-9]+)(/.*)?$" . "${1}" -}}
{{- if regexMatch "^[0-9]+$" $port }}
- {{ $port }}
{{- else if and . (not (hasPrefix "/" .)) }}
- {{ $default }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Returns the ports of Redis, the management server, the collector and the StatsD servers. */}}
{{- define "weir.egressPorts" -}}
{{- $lists := list -}}
{{- if eq .Values.rules.source "xds" -}}
{{- $lists = append $lists (include "weir.ports" (list .Values.rules.xds.url 443)) -}}
{{- end -}}
{{- $settings := .Values.settings -}}
{{- $servers := list (dig "store" "redis" "per_second" dict $settings) -}}
{{- if eq .Values.store.kind "redis" }}{{ $servers = prepend $servers .Values.store.redis }}{{ end -}}
{{- range $servers -}}
{{- $isSentinel := eq (.topology | default "") "sentinel" -}}
{{- $lists = append $lists (include "weir.ports" (list (.url | default "") (ternary 26379 6379 $isSentinel))) -}}
{{- $lists = append $lists (ternary "\n- 6379" "" $isSentinel) -}}
{{- end -}}
{{- with dig "tracing" "endpoint" "" $settings -}}
{{- $lists = append $lists (include "weir.ports" (list . (ternary 443 4318 (hasPrefix "https:" .)))) -}}
{{- end -}}
{{- range list "statsd" "dogstatsd" -}}
{{- if dig "metrics" . "enabled" false $settings -}}
{{- $lists = append $lists (include "weir.ports" (list (dig "metrics" . "address" "localhost:8125" $settings) 8125)) -}}
{{- end -}}
{{- end -}}
{{- join "" $lists | fromYamlArray | uniq | toYaml -}}
{{- end -}}
