{{/* Durations and numbers that follow from values. */}}

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
