{{/* What users cannot set, because the chart sets it, or because it is secret: as settings, variables and arguments. */}}

{{/* Refuses such settings. */}}
{{- define "weir.check.settings" -}}
{{- range $name, $instead := merge (include "weir.refusedInSettings" . | fromYaml) (include "weir.refusedSettings" . | fromYaml) }}
{{- if include "weir.setting" (list $ $name) }}
settings.{{ $name }} is refused: {{ $instead }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Returns the JSON of a setting, or of a group, in the value `settings`; nothing if it is not there or empty. Takes a list: the root context, its name. */}}
{{- define "weir.setting" -}}
{{- $value := (index . 0).Values.settings -}}
{{- range splitList "." (index . 1) -}}
{{- $value = ternary (get (ternary $value dict (kindIs "map" $value)) .) nil (kindIs "map" $value) -}}
{{- end -}}
{{- if not (or (kindIs "invalid" $value) (and (kindIs "string" $value) (eq $value ""))) -}}
{{- toJson $value -}}
{{- end -}}
{{- end -}}

{{/* Refuses such variables, names that occur twice, and volumes and containers of the same name. */}}
{{- define "weir.check.env" -}}
{{- $names := list }}
{{- range (include "weir.env" . | fromYaml | default dict).env }}
{{- if has .name $names }}
extraEnv has {{ .name }} twice, or the chart sets it: write it once
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- $ofReference := .Files.Get "files/variables.yaml" | fromYaml }}
{{- range $entry := .Values.extraEnv }}
{{- $settings := get $ofReference .name | default list }}
{{- if hasPrefix "WEIR__" .name }}
{{- $settings = list (trimPrefix "WEIR__" .name | lower | replace "__" ".") }}
{{- end }}
{{- /* The variables of Redis make it the store, too, which the others of their settings imply. */}}
{{- $isOfRedis := and (hasPrefix "REDIS_" .name) (has "store.kind" $settings) }}
{{- if and $isOfRedis (include "weir.refusal" (list $ (without $settings "store.kind") false)) }}
{{- $settings = without $settings "store.kind" }}
{{- $isOfRedis = false }}
{{- end }}
{{- with include "weir.refusal" (list $ $settings (hasKey . "valueFrom")) }}
extraEnv must not set {{ $entry.name }}: {{ if $isOfRedis }}it makes Redis the store; {{ end }}{{ . }}
{{- end }}
{{- end }}
{{- $volumes := list }}
{{- range include "weir.volumes" . | fromYamlArray }}
{{- if has .name $volumes }}
extraVolumes has a volume named {{ .name }}, which the chart has too, or twice: choose another name
{{- end }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $containers := list "weir" }}
{{- range $value := list "initContainers" "extraContainers" }}
{{- range get $.Values $value }}
{{- if has .name $containers }}
{{ $value }} has a container named {{ .name }}, which the pod has already: choose another name
{{- end }}
{{- $containers = append $containers .name }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Refuses such arguments, and those with which weir does not serve. */}}
{{- define "weir.check.args" -}}
{{- $flags := dict "--rules" "rules.paths" "--grpc-address" "grpc.address" "--http-address" "http.address" "--debug-address" "debug.address" }}
{{- $flag := "" }}
{{- range $argument := .Values.extraArgs }}
{{- $value := $argument }}
{{- if not $flag }}
{{- $parts := splitn "=" 2 $argument }}
{{- $flag = $parts._0 }}
{{- $value = $parts._1 }}
{{- end }}
{{- if hasKey $flags $flag }}
extraArgs must not have {{ $flag }}: {{ include "weir.refusal" (list $ (list (get $flags $flag)) false) }}
{{- $flag = "" }}
{{- else if eq $flag "--settings" }}
extraArgs must not have --settings: the chart writes that file; use the value settings
{{- $flag = "" }}
{{- else if not (has $flag (list "--set" "--log-level")) }}
extraArgs has {{ $argument }}: write --set=NAME=VALUE or --log-level=LEVEL
{{- $flag = "" }}
{{- else if $value }}
{{- if eq $flag "--set" }}
{{- $setting := index (splitList "=" $value) 0 }}
{{- with include "weir.refusal" (list $ (list $setting) false) }}
extraArgs must not set {{ $setting }}: {{ . }}
{{- end }}
{{- end }}
{{- $flag = "" }}
{{- end }}
{{- end }}
{{- with $flag }}
extraArgs ends with {{ . }}: write its value after it
{{- end }}
{{- end -}}

{{/*
Returns why a variable or an argument is refused, or nothing. Takes a list: the root context, the settings that it sets, whether its
value is from a secret.
*/}}
{{- define "weir.refusal" -}}
{{- $root := index . 0 -}}
{{- $isFromSecret := index . 2 -}}
{{- $refused := merge (include "weir.refusedInEnvironment" $root | fromYaml) (include "weir.refusedInSettings" $root | fromYaml) (include "weir.refusedSettings" $root | fromYaml) -}}
{{- $reasons := list -}}
{{- $others := list -}}
{{- range $setting := index . 1 -}}
{{- $reason := "" -}}
{{- range $name, $instead := $refused -}}
{{- if or (eq $setting $name) (hasPrefix (print $name ".") $setting) -}}
{{- if not (and $isFromSecret (has $name (list "otlp.headers" "rules.xds.headers"))) -}}
{{- $reason = $instead -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $reason -}}
{{- $reasons = append $reasons $reason -}}
{{- else -}}
{{- $others = append $others (print "settings." $setting) -}}
{{- end -}}
{{- end -}}
{{- if $reasons -}}
{{- uniq $reasons | join "; " -}}
{{- with $others -}}
; for its other effect use {{ join ", " . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Returns the settings, or groups of them, that are refused, and what to use instead. */}}
{{- define "weir.refusedSettings" -}}
rules.source: use the value rules.source
rules.paths: use the value rules.files or rules.existingConfigMap
rules.ignore_dot_files: remove it; such files are ignored, since the directory of a ConfigMap has each file a second time below one
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
store.memory.max_keys: use the value store.memory.maxKeys, which the memory limit follows
store.disk.path: the volume is mounted there; use the values of store.disk
store.redis.topology: use the value store.redis.topology
store.redis.url: use the value store.redis.url
store.redis.db: use the value store.redis.db
store.redis.password: use the value store.redis.existingSecret
store.redis.tls.enabled: use the value store.redis.tls.enabled
store.redis.tls.ca: use the value store.redis.tls.caSecret
store.redis.tls.cert: use the value store.redis.tls.clientSecret
store.redis.tls.key: use the value store.redis.tls.clientSecret
store.redis.sentinel.master_name: use the value store.redis.sentinel.masterName
store.redis.sentinel.password: use the value store.redis.sentinel.existingSecret
store.redis.per_second.password: anyone with access to ConfigMaps could read it; use the value store.redis.perSecond.existingSecret
store.redis.per_second.sentinel.password: anyone with access to ConfigMaps could read it; use the value store.redis.perSecond.sentinel.existingSecret
otlp.headers: they may be secret; set WEIR__OTLP__HEADERS in the value extraEnv, from a secret
{{- end -}}

{{/* Returns what weir.refusedSettings does, for settings that are refused with these values only. */}}
{{- define "weir.refusedInSettings" -}}
{{- if not (include "weir.scaledElsewhere" .) }}
store.replicas: it follows the value replicaCount or autoscaling.maxReplicas
{{- end }}
{{- if ne .Values.store.kind "redis" }}
{{- range list "store.redis" "store.redis.sentinel" }}
{{ . }}.username: it needs the value store.kind=redis
{{ . }}.password_file: it needs the value store.kind=redis
{{- end }}
{{- end }}
{{- range include "weir.redisServers" . | fromYamlArray }}
{{- $server := . }}
{{- range $suffix, $login := dict "" .values ".sentinel" .values.sentinel }}
{{- if $login.usernameKey }}
{{ $server.setting }}{{ $suffix }}.username: the secret has it; remove it, or the value {{ $server.value }}{{ $suffix }}.usernameKey
{{- end }}
{{- if $login.existingSecret }}
{{ $server.setting }}{{ $suffix }}.password_file: the value {{ $server.value }}{{ $suffix }}.existingSecret has the password; remove one of them
{{- end }}
{{- end }}
{{- if eq .name "per-second" }}
{{ include "weir.refusedPerSecond" $ }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Returns the settings of the second Redis that the chart sets. */}}
{{- define "weir.refusedPerSecond" -}}
store.redis.per_second.url: use the value store.redis.perSecond.url
store.redis.per_second.topology: use the value store.redis.perSecond.topology
store.redis.per_second.db: use the value store.redis.perSecond.db
store.redis.per_second.tls.enabled: use the value store.redis.perSecond.tls.enabled
store.redis.per_second.tls.ca: use the value store.redis.perSecond.tls.caSecret
store.redis.per_second.tls.cert: use the value store.redis.perSecond.tls.clientSecret
store.redis.per_second.tls.key: use the value store.redis.perSecond.tls.clientSecret
store.redis.per_second.sentinel.master_name: use the value store.redis.perSecond.sentinel.masterName
{{- end -}}

{{/* Returns what weir.refusedSettings does, for settings that the value `settings` may have, but no variable and no argument. */}}
{{- define "weir.refusedInEnvironment" -}}
store.replicas: use the value replicaCount or autoscaling.maxReplicas, or settings.store.replicas if replicaCount is null
{{- range list "store.redis" "store.redis.sentinel" "store.redis.per_second" "store.redis.per_second.sentinel" }}
{{- $value := . | replace "per_second" "perSecond" }}
{{ . }}.username: use the values {{ $value }}.existingSecret and {{ $value }}.usernameKey, or settings.{{ . }}.username
{{ . }}.password_file: use the value {{ $value }}.existingSecret or settings.{{ . }}.password_file
{{- end }}
{{- if include "weir.countsReplicas" . }}
store.redis.layout: use settings.store.redis.layout, so that the chart leaves out store.count_replicas, which another layout does not have
{{- end }}
{{ include "weir.refusedPerSecond" . }}
{{- end -}}
