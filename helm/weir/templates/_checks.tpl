{{/* What the schema cannot check. Each problem is a line: what is wrong, and what to write instead. */}}

{{/* Fails with all problems of the values. */}}
{{- define "weir.check" -}}
{{- $problems := list -}}
{{- range $check := list "names" "replicas" "rules" "store" "redis" "controls" "debug" "resp" "tls" "settings" "env" "args" "drain" "metrics" -}}
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
{{- $http := ternary .http nil (eq "true" (include "weir.exposesHttp" $)) }}
{{- if and $http (eq (int64 .grpc) (int64 $http)) }}
service.ports.grpc and service.ports.http are both {{ .grpc }}: write different ports
{{- end }}
{{- if $.Values.resp.enabled }}
{{- range $name, $port := dict "grpc" .grpc "http" $http }}
{{- if eq (int64 $port) (int64 $.Values.service.ports.resp) }}
service.ports.resp and service.ports.{{ $name }} are both {{ $port }}: write different ports
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.service }}
{{- if and .exposeHttp (not .ports.http) }}
service.exposeHttp has no effect without service.ports.http: set the port, or service.exposeHttp=false
{{- end }}
{{- if and .loadBalancerSourceRanges (ne .type "LoadBalancer") }}
service.loadBalancerSourceRanges has no effect with service.type={{ .type }}: set service.type=LoadBalancer, or use networkPolicy.ingressFrom
{{- end }}
{{- if and (gt (len .ipFamilies) 1) (has .ipFamilyPolicy (list "" "SingleStack")) }}
service.ipFamilies has two families: set service.ipFamilyPolicy to PreferDualStack or RequireDualStack
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.check.replicas" -}}
{{- with .Values.autoscaling }}
{{- if and .enabled (gt (int64 .minReplicas) (int64 .maxReplicas)) }}
autoscaling.minReplicas ({{ .minReplicas }}) is above autoscaling.maxReplicas: write {{ .maxReplicas }} or less
{{- end }}
{{- if and .enabled (not .targetCPUUtilizationPercentage) (not .metrics) }}
autoscaling.enabled needs a metric: set autoscaling.targetCPUUtilizationPercentage or autoscaling.metrics
{{- end }}
{{- end }}
{{- if and (include "weir.scaledElsewhere" .) (lt (include "weir.maxReplicas" . | int64) 1) }}
replicaCount is null, so something else sets the number of replicas: set settings.store.replicas to the largest number of them
{{- end }}
{{- with .Values.podDisruptionBudget }}
{{- if and .enabled .minAvailable (ne (toString .maxUnavailable) "1") (not (kindIs "invalid" .maxUnavailable)) }}
podDisruptionBudget has both minAvailable and maxUnavailable: remove one of them
{{- end }}
{{- if and .enabled (not .minAvailable) (not .maxUnavailable) }}
podDisruptionBudget.enabled needs podDisruptionBudget.maxUnavailable or podDisruptionBudget.minAvailable
{{- end }}
{{- end }}
{{- with .Values.strategy }}
{{- if eq $.Values.store.kind "disk" }}
strategy has no effect with store.kind=disk, whose only pod stops before the new one starts: remove it
{{- else if and $.Values.controls.existingClaim (ne (dig "type" "" .) "Recreate") }}
strategy must be Recreate with controls.existingClaim, since two pods must not write the same file: remove it
{{- end }}
{{- end }}
{{- $kind := .Values.store.kind }}
{{- if has $kind (list "memory" "disk") }}
{{- if .Values.autoscaling.enabled }}
store.kind={{ $kind }} counts in each replica separately, so autoscaling would multiply the limits: set autoscaling.enabled=false and replicaCount=1, or store.kind=redis
{{- else if kindIs "invalid" .Values.replicaCount }}
store.kind={{ $kind }} counts in each replica separately, so more replicas would multiply the limits: set replicaCount=1, or store.kind=redis
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
{{- if and .files (not (regexMatch "\\.ya?ml( |$)" (keys .files | join " "))) }}
rules.files has no rules, only {{ keys .files | sortAlpha | join ", " }}: end the name of a rule file in .yaml
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
{{- if and (ne .kind "redis") (or .redis.url .redis.existingSecret .redis.tls.enabled .redis.sentinel.masterName .redis.perSecond.url) }}
store.redis has no effect with store.kind={{ .kind }}: set store.kind=redis
{{- end }}
{{- if and (ne .kind "disk") (or .disk.storageClass .disk.existingClaim) }}
store.disk has no effect with store.kind={{ .kind }}: set store.kind=disk
{{- end }}
{{- if and (eq .kind "bundled") (not .bundled.existingSecret) }}
{{- /* A list is never empty, even of a namespace that does not exist yet, and Helm itself lists the secrets of its release. */}}
{{- if not (or (lookup "v1" "Secret" (include "weir.namespace" $) (include "weir.name" (list $ "store"))) (lookup "v1" "Secret" $.Release.Namespace "")) }}
store.bundled.existingSecret is empty, and without a cluster, as in helm template and Argo CD, each rendering would generate another password: create a secret with the key {{ .bundled.passwordKey }}, and set store.bundled.existingSecret to its name, or use --dry-run=server
{{- end }}
{{- end }}
{{- if and .disk.storageClass .disk.existingClaim }}
store.disk.storageClass has no effect with store.disk.existingClaim: remove one of them
{{- end }}
{{- end }}
{{- if contains "@" (dig "store" "redis" "per_second" "url" "" .Values.settings) }}
settings.store.redis.per_second.url has a user name or a password, which anyone with access to ConfigMaps can read: use store.redis.perSecond.url, with host:port only, and put the password into the secret store.redis.perSecond.existingSecret
{{- end }}
{{- end -}}

{{- define "weir.check.redis" -}}
{{- if and (eq .Values.store.kind "redis") (not .Values.store.redis.url) }}
store.kind=redis needs store.redis.url, such as redis.example.com:6379
{{- end }}
{{- with .Values.store.redis.perSecond }}
{{- if and (not .url) (or .existingSecret .tls.enabled .sentinel.masterName) }}
store.redis.perSecond has values, but no address: set store.redis.perSecond.url, such as redis.example.com:6379
{{- end }}
{{- end }}
{{- range $server := include "weir.redisServers" . | fromYamlArray }}
{{- with $server.values }}
{{- if contains "@" .url }}
{{ $server.value }}.url has a user name or a password, which anyone with access to ConfigMaps can read: write host:port only, and put the password into the secret {{ $server.value }}.existingSecret
{{- end }}
{{- range splitList "," .url }}
{{- if and (contains "://" .) (not (regexMatch "^rediss?://" (trim .))) }}
{{ $server.value }}.url has {{ trim . }}: write host:port, or redis://host:port, or rediss://host:port for TLS
{{- end }}
{{- end }}
{{- if and (has .topology (list "single" "proxy")) (contains "," .url) }}
{{ $server.value }}.url has several addresses, but {{ $server.value }}.topology is {{ .topology }}: write one address, or set the topology to sentinel or cluster
{{- end }}
{{- if and (has .topology (list "cluster" "proxy")) (gt (int64 .db) 0) }}
{{ $server.value }}.db is {{ .db }}, but a {{ .topology }} has only database 0: remove {{ $server.value }}.db
{{- end }}
{{- if and (eq .topology "sentinel") (not .sentinel.masterName) }}
{{ $server.value }}.topology=sentinel needs {{ $server.value }}.sentinel.masterName, the name of the master at the sentinels
{{- end }}
{{- if and (ne .topology "sentinel") (or .sentinel.masterName .sentinel.existingSecret (include "weir.setting" (list $ (print $server.setting ".sentinel")))) }}
{{ $server.value }}.sentinel has no effect with {{ $server.value }}.topology={{ .topology }}: set {{ $server.value }}.topology=sentinel
{{- end }}
{{- range $suffix, $login := dict "" . ".sentinel" .sentinel }}
{{- if and $login.usernameKey (not $login.existingSecret) }}
{{ $server.value }}{{ $suffix }}.usernameKey needs {{ $server.value }}{{ $suffix }}.existingSecret, the secret with that key
{{- end }}
{{- $setting := printf "%s%s.password_file" $server.setting $suffix }}
{{- with include "weir.setting" (list $ $setting) }}
{{- if not (or $login.existingSecret (include "weir.isMounted" (list $ (fromJson (printf "{\"path\": %s}" .)).path))) }}
settings.{{ $setting }} is {{ . }}, which is not below a mount: write a path below a mountPath of extraVolumeMounts
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Returns `true` if a path is below a mount of extraVolumeMounts. Takes a list: the root context, the path. */}}
{{- define "weir.isMounted" -}}
{{- $path := clean (index . 1) -}}
{{- range (index . 0).Values.extraVolumeMounts -}}
{{- if hasPrefix (printf "%s/" (clean .mountPath | trimSuffix "/")) $path -}}
true
{{- end -}}
{{- end -}}
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
{{- range $name, $tls := dict "rules.xds.tls" .Values.rules.xds.tls "store.redis.tls" .Values.store.redis.tls "store.redis.perSecond.tls" .Values.store.redis.perSecond.tls }}
{{- if and (not $tls.enabled) (or $tls.caSecret $tls.clientSecret $tls.serverName) }}
{{ $name }} has values, but TLS is not enabled: set {{ $name }}.enabled=true
{{- end }}
{{- end }}
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
