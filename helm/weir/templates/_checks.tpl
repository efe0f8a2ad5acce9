{{/* What the schema cannot check. Each problem is a line: what is wrong, and what to write instead. */}}

{{/* Fails with all problems of the values. */}}
{{- define "weir.check" -}}
{{- $problems := list -}}
{{- range $check := list "names" "replicas" "rules" "store" "redis" "controls" "debug" "resp" "tls" "settings" "env" "drain" "metrics" -}}
{{- range include (printf "weir.check.%s" $check) $ | splitList "\n" -}}
{{- $problems = append $problems (trim .) -}}
{{- end -}}
{{- end -}}
{{- with compact $problems -}}
{{- fail (printf "invalid values:\n- %s" (join "\n- " .)) -}}
{{- end -}}
{{- end -}}

{{- define "weir.check.names" -}}
{{- if not (regexMatch "^[a-z]" (include "weir.fullname" .)) }}
the Service would be named {{ include "weir.fullname" . }}, but a name must start with a letter: set fullnameOverride
{{- end }}
{{- with .Values.service.ports }}
{{- if eq (int64 .grpc) (int64 .http) }}
service.ports.grpc and service.ports.http are both {{ .grpc }}: write different ports
{{- end }}
{{- if $.Values.resp.enabled }}
{{- range $name, $port := dict "grpc" .grpc "http" .http }}
{{- if eq (int64 $port) (int64 $.Values.service.ports.resp) }}
service.ports.resp and service.ports.{{ $name }} are both {{ $port }}: write different ports
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.check.replicas" -}}
{{- with .Values.autoscaling }}
{{- if and .enabled (gt (int64 .minReplicas) (int64 .maxReplicas)) }}
autoscaling.minReplicas ({{ .minReplicas }}) is above autoscaling.maxReplicas: write {{ .maxReplicas }} or less
{{- end }}
{{- end }}
{{- $kind := .Values.store.kind }}
{{- if has $kind (list "memory" "disk") }}
{{- if .Values.autoscaling.enabled }}
store.kind={{ $kind }} counts in each replica separately, so autoscaling would multiply the limits: set autoscaling.enabled=false and replicaCount=1, or store.kind=redis
{{- else if gt (int64 .Values.replicaCount) 1 }}
store.kind={{ $kind }} counts in each replica separately, so {{ .Values.replicaCount }} replicas would allow {{ .Values.replicaCount }} times the limits: set replicaCount=1, or store.kind=redis
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.check.rules" -}}
{{- with .Values.rules }}
{{- if and .files (ne .source "inline") }}
rules.files has no effect with rules.source={{ .source }}: remove it, or set rules.source=inline
{{- end }}
{{- if and .existingConfigMap (ne .source "configMap") }}
rules.existingConfigMap has no effect with rules.source={{ .source }}: set rules.source=configMap
{{- end }}
{{- if and (eq .source "configMap") (not .existingConfigMap) }}
rules.source=configMap needs rules.existingConfigMap, the name of a ConfigMap with rule files
{{- end }}
{{- if and .xds.url (ne .source "xds") }}
rules.xds.url has no effect with rules.source={{ .source }}: set rules.source=xds
{{- end }}
{{- if and (eq .source "xds") (not .xds.url) }}
rules.source=xds needs rules.xds.url, the management server as host:port
{{- end }}
{{- range $name, $text := .files }}
{{- if regexMatch "\\.overlay\\.ya?ml$" $name }}
rules.files has {{ $name }}, which is not read as rules: move it to rules.overlay.files
{{- end }}
{{- end }}
{{- range $name, $text := .overlay.files }}
{{- if not (regexMatch "\\.overlay\\.ya?ml$" $name) }}
rules.overlay.files has {{ $name }}, which is not read: name it {{ regexReplaceAll "\\.ya?ml$" $name "" }}.overlay.yaml
{{- end }}
{{- end }}
{{- if and .overlay.files .overlay.existingConfigMap }}
rules.overlay.files has no effect with rules.overlay.existingConfigMap: remove one of them
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.check.store" -}}
{{- with .Values.store }}
{{- if and (ne .kind "redis") (or .redis.url .redis.existingSecret .redis.tls.enabled .redis.sentinel.masterName) }}
store.redis has no effect with store.kind={{ .kind }}: set store.kind=redis
{{- end }}
{{- if and (ne .kind "disk") (or .disk.storageClass .disk.existingClaim) }}
store.disk has no effect with store.kind={{ .kind }}: set store.kind=disk
{{- end }}
{{- if and .disk.storageClass .disk.existingClaim }}
store.disk.storageClass has no effect with store.disk.existingClaim: remove one of them
{{- end }}
{{- end }}
{{- if contains "@" (dig "store" "redis" "per_second" "url" "" .Values.settings) }}
settings.store.redis.per_second.url has a user name or a password, which anyone with access to ConfigMaps can read: write host:port only, mount a secret with the values extraVolumes and extraVolumeMounts, and set password_file
{{- end }}
{{- end -}}

{{- define "weir.check.redis" -}}
{{- if eq .Values.store.kind "redis" }}
{{- with .Values.store.redis }}
{{- if not .url }}
store.kind=redis needs store.redis.url, such as redis.example.com:6379
{{- end }}
{{- if contains "@" .url }}
store.redis.url has a user name or a password, which anyone with access to ConfigMaps can read: write host:port only, and put the password into the secret store.redis.existingSecret
{{- end }}
{{- range splitList "," .url }}
{{- if and (contains "://" .) (not (regexMatch "^rediss?://" (trim .))) }}
store.redis.url has {{ trim . }}: write host:port, or redis://host:port, or rediss://host:port for TLS
{{- end }}
{{- end }}
{{- if and (eq .topology "single") (contains "," .url) }}
store.redis.url has several addresses, but store.redis.topology is single: write one address, or set the topology to sentinel or cluster
{{- end }}
{{- if and (eq .topology "cluster") (gt (int64 .db) 0) }}
store.redis.db is {{ .db }}, but a cluster has only database 0: remove store.redis.db
{{- end }}
{{- if and (eq .topology "sentinel") (not .sentinel.masterName) }}
store.redis.topology=sentinel needs store.redis.sentinel.masterName, the name of the master at the sentinels
{{- end }}
{{- if and (ne .topology "sentinel") (or .sentinel.masterName .sentinel.existingSecret) }}
store.redis.sentinel has no effect with store.redis.topology={{ .topology }}: set store.redis.topology=sentinel
{{- end }}
{{- if and .usernameKey (not .existingSecret) }}
store.redis.usernameKey needs store.redis.existingSecret, the secret with that key
{{- end }}
{{- if and .sentinel.usernameKey (not .sentinel.existingSecret) }}
store.redis.sentinel.usernameKey needs store.redis.sentinel.existingSecret, the secret with that key
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.check.controls" -}}
{{- if and .Values.controls.existingClaim (eq .Values.store.kind "disk") }}
controls.existingClaim has no effect with store.kind=disk, whose volume keeps controls too: remove it
{{- else if and .Values.controls.existingClaim (ne .Values.store.kind "memory") }}
controls.existingClaim has no effect with store.kind={{ .Values.store.kind }}, as Redis keeps controls: remove it
{{- end }}
{{- end -}}

{{- define "weir.check.debug" -}}
{{- with .Values.debug }}
{{- if not .existingSecret }}
{{- if .readTokenKey }}
debug.readTokenKey needs debug.existingSecret, the secret with that key
{{- end }}
{{- else if not (or .readTokenKey .writeTokenKey) }}
debug.existingSecret needs debug.readTokenKey or debug.writeTokenKey, the keys of its tokens
{{- else if eq .readTokenKey .writeTokenKey }}
debug.readTokenKey and debug.writeTokenKey are both {{ .readTokenKey }}, so that the token may write: write different keys, or make debug.readTokenKey empty
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.check.resp" -}}
{{- with .Values.resp }}
{{- if and .existingSecret (not .enabled) }}
resp.existingSecret has no effect: set resp.enabled=true
{{- end }}
{{- if and .existingSecret (not .passwordKey) }}
resp.existingSecret needs resp.passwordKey, the key of the password
{{- end }}
{{- if and $.Values.settings.resp (not .enabled) }}
settings.resp has no effect: set resp.enabled=true
{{- end }}
{{- if and $.Values.tls.resp.enabled (not .enabled) }}
tls.resp.enabled has no effect: set resp.enabled=true
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.check.tls" -}}
{{- range $listener := list "grpc" "http" "resp" }}
{{- with get $.Values.tls $listener }}
{{- if not .enabled }}
{{- range $key := list "secret" "clientCaSecret" "clientDnsSans" "clientUriSans" }}
{{- if get (get $.Values.tls $listener) $key }}
tls.{{ $listener }}.{{ $key }} has no effect: set tls.{{ $listener }}.enabled=true
{{- end }}
{{- end }}
{{- else }}
{{- if not (include "weir.certificateSecret" (list $ $listener)) }}
tls.{{ $listener }}.enabled needs a certificate: set tls.{{ $listener }}.secret, or tls.certManager.enabled=true
{{- end }}
{{- if and (or .clientDnsSans .clientUriSans) (not .clientCaSecret) }}
tls.{{ $listener }}.clientDnsSans and clientUriSans need tls.{{ $listener }}.clientCaSecret, the CA of the clients' certificates
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.tls }}
{{- if .certManager.enabled }}
{{- if not (dig "name" "" .certManager.issuerRef) }}
tls.certManager.enabled needs tls.certManager.issuerRef.name, the name of an Issuer or ClusterIssuer
{{- end }}
{{- if not (include "weir.certManagerUsed" $) }}
tls.certManager.enabled has no effect: set tls.grpc.enabled=true, tls.http.enabled=true or tls.resp.enabled=true, without a secret
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $tls := dict "rules.xds.tls" .Values.rules.xds.tls "store.redis.tls" .Values.store.redis.tls }}
{{- if and (not $tls.enabled) (or $tls.caSecret $tls.clientSecret $tls.serverName) }}
{{ $name }} has values, but TLS is not enabled: set {{ $name }}.enabled=true
{{- end }}
{{- end }}
{{- end -}}

{{/* Refuses settings that the chart sets itself, and those that are secret. */}}
{{- define "weir.check.settings" -}}
{{- range $name, $instead := include "weir.refusedSettings" . | fromYaml }}
{{- $value := $.Values.settings }}
{{- range splitList "." $name }}
{{- $value = ternary (get (ternary $value dict (kindIs "map" $value)) .) nil (kindIs "map" $value) }}
{{- end }}
{{- if not (kindIs "invalid" $value) }}
{{- if not (and (kindIs "string" $value) (eq $value "")) }}
settings.{{ $name }} is refused: {{ $instead }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Refuses variables that would set what the chart sets, and names that occur twice. */}}
{{- define "weir.check.env" -}}
{{- $refused := include "weir.refusedSettings" . | fromYaml }}
{{- $names := list }}
{{- range (include "weir.env" . | fromYaml | default dict).env }}
{{- $variable := .name }}
{{- if has $variable $names }}
extraEnv has {{ $variable }} twice, or the chart sets it: write it once
{{- end }}
{{- $names = append $names $variable }}
{{- end }}
{{- range $entry := .Values.extraEnv }}
{{- $isFromSecret := hasKey $entry "valueFrom" }}
{{- range $name, $instead := $refused }}
{{- $variable := printf "WEIR__%s" ($name | upper | replace "." "__") }}
{{- if or (eq $entry.name $variable) (hasPrefix (printf "%s__" $variable) $entry.name) }}
{{- if not (and $isFromSecret (has $name (list "otlp.headers" "rules.xds.headers"))) }}
extraEnv must not set {{ $entry.name }}: {{ $instead }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $volumes := list }}
{{- range include "weir.volumes" . | fromYamlArray }}
{{- if has .name $volumes }}
extraVolumes has a volume named {{ .name }}, which the chart has too, or twice: choose another name
{{- end }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- end -}}

{{/* Returns the settings, or groups of them, that are refused, and what to use instead. */}}
{{- define "weir.refusedSettings" -}}
rules.source: use the value rules.source
rules.paths: use the value rules.files or rules.existingConfigMap
rules.ignore_dot_files: the directory of a ConfigMap has each file a second time below one that starts with a dot
rules.runtime: use the value rules.files or rules.existingConfigMap
rules.overlay: use the value rules.overlay.files or rules.overlay.existingConfigMap
rules.xds.url: use the value rules.xds.url
rules.xds.mode: use the value rules.xds.mode
rules.xds.node_id: use the value rules.xds.nodeId
rules.xds.headers: they may be secret; set WEIR__RULES__XDS__HEADERS in the value extraEnv, from a secret
rules.xds.tls: use the value rules.xds.tls
grpc.address: the container's port is fixed; use the value service.ports.grpc
grpc.uds: the Services need the port
grpc.tls: use the value tls.grpc
http.address: the container's port is fixed; use the value service.ports.http
http.tls: use the value tls.http
resp.address: the container's port is fixed; use the values resp.enabled and service.ports.resp
resp.password_file: use the values resp.existingSecret and resp.passwordKey
resp.tls: use the value tls.resp
debug.address: it stays on loopback; use kubectl port-forward to reach it
debug.read_token_file: use the values debug.existingSecret and debug.readTokenKey
debug.write_token_file: use the values debug.existingSecret and debug.writeTokenKey
debug.require_token: use the value debug.existingSecret, with which clients need a token
controls.file: use the value controls.existingClaim
metrics.prometheus.address: the container's port is fixed
metrics.prometheus.path: the ServiceMonitor reads /metrics
drain.delay: use the value drain.delay
drain.timeout: use the value drain.timeout
store.kind: use the value store.kind
store.on_failure: use the value store.onFailure
store.replicas: it follows the value replicaCount or autoscaling.maxReplicas
store.memory.max_keys: use the value store.memory.maxKeys, which the memory limit follows
store.redis.topology: use the value store.redis.topology
store.redis.url: use the value store.redis.url
store.redis.db: use the value store.redis.db
store.redis.username: use the values store.redis.existingSecret and store.redis.usernameKey
store.redis.password: use the value store.redis.existingSecret
store.redis.password_file: use the value store.redis.existingSecret
store.redis.tls.enabled: use the value store.redis.tls.enabled
store.redis.tls.ca: use the value store.redis.tls.caSecret
store.redis.tls.cert: use the value store.redis.tls.clientSecret
store.redis.tls.key: use the value store.redis.tls.clientSecret
store.redis.sentinel: use the values of store.redis.sentinel
store.redis.per_second.password: anyone with access to ConfigMaps could read it; mount a secret with the values extraVolumes and extraVolumeMounts, and set password_file
store.redis.per_second.sentinel.password: anyone with access to ConfigMaps could read it; mount a secret with the values extraVolumes and extraVolumeMounts, and set password_file
otlp.headers: they may be secret; set WEIR__OTLP__HEADERS in the value extraEnv, from a secret
{{- end -}}

{{- define "weir.check.drain" -}}
{{- with .Values.drain }}
{{- if ge (include "weir.milliseconds" .delay | int64) (include "weir.milliseconds" .timeout | int64) }}
drain.timeout ({{ .timeout }}) must exceed drain.delay ({{ .delay }}), which it includes
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.check.metrics" -}}
{{- with .Values.metrics }}
{{- if and .serviceMonitor.enabled .podMonitor.enabled }}
metrics.serviceMonitor.enabled and metrics.podMonitor.enabled are both true, so that each replica would be counted twice: set one of them to false
{{- end }}
{{- $alerts := include "weir.alertNames" $ | fromYamlArray }}
{{- range .prometheusRule.disabled }}
{{- if not (has . $alerts) }}
metrics.prometheusRule.disabled has {{ . }}, which is no alert of weir: write a name of docs/operations.md, such as WeirAbsent
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
