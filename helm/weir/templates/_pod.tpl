{{/* Parts of pods. */}}

{{/* Returns what the specs of all pods have. */}}
{{- define "weir.podDefaults" -}}
serviceAccountName: {{ include "weir.serviceAccountName" . | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Returns `env`: user names, which have no setting for a file, and extraEnv. */}}
{{- define "weir.env" -}}
{{- $env := list -}}
{{- if eq .Values.store.kind "redis" -}}
{{- with .Values.store.redis -}}
{{- if .usernameKey -}}
{{- $env = append $env (dict "name" "WEIR__STORE__REDIS__USERNAME" "valueFrom" (dict "secretKeyRef" (dict "name" .existingSecret "key" .usernameKey))) -}}
{{- end -}}
{{- if and (eq .topology "sentinel") .sentinel.usernameKey -}}
{{- $env = append $env (dict "name" "WEIR__STORE__REDIS__SENTINEL__USERNAME" "valueFrom" (dict "secretKeyRef" (dict "name" .sentinel.existingSecret "key" .sentinel.usernameKey))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with concat $env .Values.extraEnv -}}
env:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/*
Returns a spread constraint. Without a labelSelector, it counts the pods of the current version of the
Deployment. Takes a list: the root context, the constraint.
*/}}
{{- define "weir.spreadConstraint" -}}
{{- $root := index . 0 -}}
{{- $constraint := deepCopy (index . 1) -}}
{{- if not $constraint.labelSelector -}}
{{- $labels := include "weir.selectorLabels" (list $root "ratelimit") | fromYaml -}}
{{- $_ := set $constraint "labelSelector" (dict "matchLabels" $labels) -}}
{{- if not (hasKey $constraint "matchLabelKeys") -}}
{{- $_ := set $constraint "matchLabelKeys" (list "pod-template-hash") -}}
{{- end -}}
{{- end -}}
- {{ toYaml $constraint | nindent 2 | trim }}
{{- end -}}
