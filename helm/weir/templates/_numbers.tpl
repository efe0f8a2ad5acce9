{{/* Durations, quantities and numbers that follow from values. */}}

{{/* Returns the milliseconds of a duration such as 1m30s. The schema has checked its form. */}}
{{- define "weir.milliseconds" -}}
{{- $units := dict "h" 3600000.0 "m" 60000.0 "s" 1000.0 "ms" 1.0 -}}
{{- $total := 0.0 -}}
{{- range regexFindAll "[0-9.]+(h|ms|m|s)" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $total = addf $total (mulf (trimSuffix $unit . | float64) (get $units $unit)) -}}
{{- end -}}
{{- ceil $total | int64 -}}
{{- end -}}

{{/* Returns the pod's grace period in seconds: drain.delay, drain.timeout and five more. */}}
{{- define "weir.gracePeriodSeconds" -}}
{{- $delay := include "weir.milliseconds" .Values.drain.delay | int64 -}}
{{- $timeout := include "weir.milliseconds" .Values.drain.timeout | int64 -}}
{{- add 5 (divf (add $delay $timeout) 1000 | ceil | int64) -}}
{{- end -}}

{{/* Returns the bytes of a quantity such as 256Mi. Takes a list: the quantity, the name of its value. */}}
{{- define "weir.bytes" -}}
{{- $quantity := index . 0 -}}
{{- if kindIs "float64" $quantity -}}
{{- $quantity = $quantity | int64 -}}
{{- end -}}
{{- $quantity = $quantity | toString -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $quantity -}}
{{- $unit := trimPrefix $number $quantity -}}
{{- if or (not $number) (not (hasKey $units $unit)) -}}
{{- fail (printf "%s is %q: write a quantity such as 256Mi or 1Gi" (index . 1) $quantity) -}}
{{- end -}}
{{- mulf ($number | float64) (get $units $unit) | ceil | int64 -}}
{{- end -}}

{{/* Returns `true` if something else than this chart sets the number of replicas, such as KEDA. */}}
{{- define "weir.scaledElsewhere" -}}
{{- if and (not .Values.autoscaling.enabled) (kindIs "invalid" .Values.replicaCount) -}}
true
{{- end -}}
{{- end -}}

{{/* Returns the largest number of replicas; 0 if no value has it. */}}
{{- define "weir.maxReplicas" -}}
{{- if .Values.autoscaling.enabled -}}
{{- .Values.autoscaling.maxReplicas | int64 -}}
{{- else if include "weir.scaledElsewhere" . -}}
{{- dig "store" "replicas" 0 .Values.settings | int64 -}}
{{- else -}}
{{- .Values.replicaCount | int64 -}}
{{- end -}}
{{- end -}}

{{/*
Returns the resources of weir. A key takes at most 57 bytes in memory, here 64; on disk, 24 more for the
list of changes. The rest is for requests in progress (grpc.max_buffered and http.max_buffered, 80 MiB), for parsing a
large body of /json (90 MiB), connections and rules. Redis clients take up to 108 MiB.
*/}}
{{- define "weir.resources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- $limits := $resources.limits | default dict -}}
{{- if not (hasKey $limits "memory") -}}
{{- $keys := mulf (.Values.store.memory.maxKeys | float64) (ternary 88 64 (eq .Values.store.kind "disk")) -}}
{{- $bytes := addf $keys (mul (ternary 364 256 .Values.resp.enabled) 1048576) | int64 -}}
{{- with dig "memory" "" ($resources.requests | default dict) -}}
{{- $bytes = max $bytes (include "weir.bytes" (list . "resources.requests.memory") | int64) -}}
{{- end -}}
{{- $limits = set $limits "memory" (printf "%dMi" (divf $bytes 1048576 | ceil | int64)) -}}
{{- end -}}
{{- $_ := set $resources "limits" $limits -}}
{{- toYaml $resources -}}
{{- end -}}
