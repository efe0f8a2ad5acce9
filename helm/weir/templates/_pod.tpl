{{/* Parts of pods. */}}

{{/* Returns what the specs of all pods have. */}}
{{- define "weir.podDefaults" -}}
serviceAccountName: {{ include "weir.serviceAccountName" . | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with include "weir.imagePullSecrets" . }}
imagePullSecrets:
  {{- . | nindent 2 }}
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
{{- if not (or (hasKey $constraint "matchLabelKeys") (eq $root.Values.store.kind "disk")) -}}
{{- $_ := set $constraint "matchLabelKeys" (list "pod-template-hash") -}}
{{- end -}}
{{- end -}}
- {{ toYaml $constraint | nindent 2 | trim }}
{{- end -}}

{{/* Returns the template of weir's pods. */}}
{{- define "weir.podTemplate" -}}
metadata:
  annotations:
    # Settings need a restart. Rules do not: they have no checksum.
    {{- $checksum := dict "checksum/settings" (include "weir.settings" . | sha256sum) }}
    {{- mergeOverwrite (dict) .Values.commonAnnotations .Values.podAnnotations $checksum | toYaml | nindent 4 }}
  labels:
    {{- include "weir.podLabels" (list . "ratelimit" .Values.podLabels) | nindent 4 }}
spec:
  {{- include "weir.podDefaults" . | nindent 2 }}
  terminationGracePeriodSeconds: {{ include "weir.gracePeriodSeconds" . }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ quote . }}
  {{- end }}
  {{- with .Values.podSpec }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: weir
      image: {{ include "weir.image" (list . .Values.image .Chart.AppVersion) | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [/bin/weir]
      args: {{ concat (list "serve" "--settings" "/etc/weir/settings/weir.yaml") .Values.extraArgs | toJson }}
      {{- with .Values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - { name: grpc, containerPort: 8081 }
        - { name: http, containerPort: 8080 }
        {{- if .Values.resp.enabled }}
        - { name: resp, containerPort: 6380 }
        {{- end }}
        - { name: metrics, containerPort: 9090 }
      startupProbe:
        {{- include "weir.probe" (list . "/livez" .Values.startupProbe) | nindent 8 }}
      readinessProbe:
        {{- include "weir.probe" (list . "/readyz" .Values.readinessProbe) | nindent 8 }}
      livenessProbe:
        {{- include "weir.probe" (list . "/livez" .Values.livenessProbe) | nindent 8 }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "weir.volumeMounts" . | nindent 8 }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "weir.volumes" . | nindent 4 }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- include "weir.spreadConstraint" (list $ .) | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end -}}
