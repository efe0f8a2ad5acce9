{{/* What the schema cannot compare. Each problem is a line: what is wrong, and what to write instead. */}}

{{/* Fails with all problems of the values. */}}
{{- define "weir.check" -}}
{{- with include "weir.problems" . | splitList "\n" | compact -}}
{{- fail (printf "invalid values:\n- %s" (join "\n- " .)) -}}
{{- end -}}
{{- end -}}

{{- define "weir.problems" -}}
{{- if not (regexMatch "^[a-z]" (include "weir.fullname" .)) }}
the Service would be named {{ include "weir.fullname" . }}, but a name must start with a letter: set fullnameOverride
{{- end }}
{{- with .Values.service.ports }}
{{- $ports := list (int64 .grpc) }}
{{- if include "weir.exposesHttp" $ }}{{ $ports = append $ports (int64 .http) }}{{ end }}
{{- if $.Values.resp.enabled }}{{ $ports = append $ports (int64 .resp) }}{{ end }}
{{- if ne (len $ports) (uniq $ports | len) }}
service.ports has one port twice ({{ join ", " $ports }}): write different ports
{{- end }}
{{- end }}
{{- $kind := .Values.store.kind }}
{{- with .Values.autoscaling }}
{{- if and .enabled (gt (int64 .minReplicas) (int64 .maxReplicas)) }}
autoscaling.minReplicas ({{ .minReplicas }}) is above autoscaling.maxReplicas: write {{ .maxReplicas }} or less
{{- end }}
{{- end }}
{{- /* Not in the schema: `helm lint` validates that with the default in place of a null. */}}
{{- if ne (empty (include "weir.scaledElsewhere" .)) (empty (dig "store" "replicas" 0 .Values.settings)) }}
settings.store.replicas is the largest number of replicas where something else sets their number: set it if replicaCount is null and autoscaling.enabled=false, and only then
{{- end }}
{{- if and (has $kind (list "memory" "disk")) (or .Values.autoscaling.enabled (include "weir.scaledElsewhere" .) (gt (include "weir.maxReplicas" . | int64) 1)) }}
store.kind={{ $kind }} counts in each replica separately, so more than one would multiply the limits: set autoscaling.enabled=false and replicaCount=1, or store.kind=redis
{{- end }}
{{- with .Values.store.bundled }}
{{- /* A list is never empty, even of a namespace that does not exist yet, and Helm itself lists the secrets of its release. */}}
{{- if not (or (ne $kind "bundled") .existingSecret (lookup "v1" "Secret" (include "weir.namespace" $) (include "weir.name" (list $ "store"))) (lookup "v1" "Secret" $.Release.Namespace "")) }}
store.bundled.existingSecret is empty, and without a cluster, as in helm template and Argo CD, each rendering would generate another password: create a secret with the key password, and set store.bundled.existingSecret to its name, or use --dry-run=server
{{- end }}
{{- end }}
{{- $redis := dig "store" "redis" dict .Values.settings }}
{{- $logins := dict "redis" $redis "redis.sentinel" (dig "sentinel" dict $redis) }}
{{- $logins = merge $logins (dict "redis.per_second" (dig "per_second" dict $redis) "redis.per_second.sentinel" (dig "per_second" "sentinel" dict $redis)) }}
{{- range $name, $login := $logins }}
{{- with $login.password_file }}
{{- $isMounted := false }}
{{- range $.Values.extraVolumeMounts }}
{{- $isMounted = or $isMounted (hasPrefix (printf "%s/" (clean .mountPath | trimSuffix "/")) (clean $login.password_file)) }}
{{- end }}
{{- if not $isMounted }}
settings.store.{{ $name }}.password_file is {{ . }}, which is not below a mount: write a path below a mountPath of extraVolumeMounts
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.debug }}
{{- if and .existingSecret (eq .readTokenKey .writeTokenKey) }}
debug.readTokenKey and debug.writeTokenKey are both {{ .readTokenKey }}, so that the token may write: write different keys, or make debug.readTokenKey empty
{{- end }}
{{- end }}
{{- with .Values.drain }}
{{- if ge (include "weir.milliseconds" .delay | int64) (include "weir.milliseconds" .timeout | int64) }}
drain.timeout ({{ .timeout }}) must exceed drain.delay ({{ .delay }}), which it includes
{{- end }}
{{- end }}
{{- $containers := concat (list (dict "name" "weir")) (.Values.initContainers | default list) (.Values.extraContainers | default list) }}
{{- range $value, $items := dict "extraEnv" .Values.extraEnv "extraVolumes" (include "weir.volumes" . | fromYamlArray) "initContainers or extraContainers" $containers }}
{{- $names := list }}
{{- range $items }}
{{- if has .name $names }}
{{ $value }}: the name {{ .name }} is there twice, or the chart has it: choose another name
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}
{{- end -}}
