{{/* What Prometheus scrapes, and the alerts of this release. */}}

{{/* Returns the label job of weir's targets: the name of the Service that a ServiceMonitor selects. */}}
{{- define "weir.job" -}}
{{- include "weir.name" (list . "metrics") -}}
{{- end -}}

{{/*
Returns an expression of PromQL whose selectors have the namespace and the job of this release. Takes a list:
the root context, the expression.
*/}}
{{- define "weir.selectRelease" -}}
{{- $root := index . 0 -}}
{{- $job := $root.Values.metrics.prometheusRule.job | default (include "weir.job" $root) -}}
{{- $labels := printf "namespace=%q, job=%q" (include "weir.namespace" $root) $job -}}
{{- $marked := regexReplaceAll "\\b(up|(?:weir|process)_[a-z0-9_]+)\\b" (index . 1) "${1}{@}" -}}
{{- $marked | replace "{@}{" "{@, " | replace "@" $labels -}}
{{- end -}}

{{/* Returns the groups of alerts, for this release, without those that the values disable. */}}
{{- define "weir.alertGroups" -}}
{{- $values := .Values.metrics.prometheusRule -}}
{{- $base := $values.runbookBaseUrl -}}
{{- if and .Chart.Home (not $base) -}}
{{- $base = printf "%s/blob/v%s/" .Chart.Home .Chart.AppVersion -}}
{{- end -}}
{{- range $group := (.Files.Get "files/weir.rules.yaml" | fromYaml).groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- if not (has $rule.alert $values.disabled) -}}
{{- $_ := set $rule "expr" (include "weir.selectRelease" (list $ $rule.expr)) -}}
{{- if $base -}}
{{- $_ := set $rule.annotations "runbook_url" (print $base $rule.annotations.runbook_url) -}}
{{- else -}}
{{- /* A link without a host is one to Alertmanager. */ -}}
{{- $_ := set $rule.annotations "runbook" $rule.annotations.runbook_url -}}
{{- $_ := unset $rule.annotations "runbook_url" -}}
{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- with $rules }}
- name: {{ $group.name }}
  rules:
    {{- toYaml . | nindent 4 }}
{{- end -}}
{{- end -}}
{{- end -}}
