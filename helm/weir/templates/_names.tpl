{{/* Names, labels and images. */}}

{{/* Returns the name of the release's resources. */}}
{{- define "weir.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Returns the namespace of the release's resources. */}}
{{- define "weir.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* Returns the full name with a suffix, in 63 characters. Takes a list: the root context, the suffix. */}}
{{- define "weir.name" -}}
{{- $root := index . 0 -}}
{{- $suffix := index . 1 -}}
{{- $base := include "weir.fullname" $root | trunc (sub 62 (len $suffix) | int) | trimSuffix "-" -}}
{{- printf "%s-%s" $base $suffix -}}
{{- end -}}

{{/* Returns the name of the StatefulSet: a label of its pods is the name, a dash and a hash of ten characters, in 63. */}}
{{- define "weir.statefulSetName" -}}
{{- include "weir.fullname" . | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "weir.serviceAccountName" -}}
{{- with .Values.serviceAccount -}}
{{- .name | default (ternary (include "weir.fullname" $) "default" .create) -}}
{{- end -}}
{{- end -}}

{{/* Returns the labels that select the pods of a component. Takes a list: the root context, the component. */}}
{{- define "weir.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Values.nameOverride | default $root.Chart.Name | quote }}
app.kubernetes.io/instance: {{ quote $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/*
Returns the labels of pods, which leave out the chart's version: a new chart alone restarts nothing.
Takes a list: the root context, the component, further labels.
*/}}
{{- define "weir.podLabels" -}}
{{- $root := index . 0 -}}
{{- $labels := include "weir.selectorLabels" (list $root (index . 1)) | fromYaml -}}
{{- mergeOverwrite (dict) $root.Values.commonLabels (index . 2) $labels | toYaml -}}
{{- end -}}

{{/*
Returns the metadata of a resource. Takes a dictionary: root; and optionally name, component, labels,
annotations.
*/}}
{{- define "weir.metadata" -}}
{{- $root := .root -}}
{{- $fixed := include "weir.selectorLabels" (list $root (.component | default "ratelimit")) | fromYaml -}}
{{- $_ := set $fixed "app.kubernetes.io/part-of" "weir" -}}
{{- $_ := set $fixed "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $fixed "app.kubernetes.io/version" (include "weir.labelValue" $root.Chart.AppVersion) -}}
{{- $_ := set $fixed "helm.sh/chart" (include "weir.labelValue" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)) -}}
name: {{ .name | default (include "weir.fullname" $root) | quote }}
namespace: {{ include "weir.namespace" $root | quote }}
labels:
  {{- mergeOverwrite (dict) $root.Values.commonLabels (.labels | default dict) $fixed | toYaml | nindent 2 }}
{{- with mergeOverwrite (dict) $root.Values.commonAnnotations (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Returns text as the value of a label. */}}
{{- define "weir.labelValue" -}}
{{- . | replace "+" "_" | trunc 63 | trimAll "-_." -}}
{{- end -}}

{{/*
Returns the reference of an image. With global.imageRegistry, that replaces the registry in the repository, which is the first
part if it has a dot or a port, or is localhost. Takes a list: the root context, the image's values, the tag if they have none.
*/}}
{{- define "weir.image" -}}
{{- $image := index . 1 -}}
{{- $repository := $image.repository -}}
{{- with dig "imageRegistry" "" ((index . 0).Values.global | default dict) -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $image.repository "") -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($image.tag | default (index . 2)) -}}
{{- end -}}
{{- end -}}

{{/* Returns the secrets for pulling images: of the values, and global ones, which may be names alone. */}}
{{- define "weir.imagePullSecrets" -}}
{{- $secrets := .Values.imagePullSecrets | default list -}}
{{- range dig "imagePullSecrets" list (.Values.global | default dict) | default list -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}
