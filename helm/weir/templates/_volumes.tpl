{{/* Volumes and mounts of weir. Directories are mounted, never single files: a subPath would not follow changes. */}}

{{/* Returns the name of the ConfigMap with overlays; empty: there is none. */}}
{{- define "weir.overlayConfigMap" -}}
{{- with .Values.rules.overlay -}}
{{- .existingConfigMap | default (ternary (include "weir.name" (list $ "overlay")) "" (not (empty .files))) -}}
{{- end -}}
{{- end -}}

{{/* Returns the name of the secret with weir's certificate for a listener. Takes a list: the root context, `grpc`, `http` or `resp`. */}}
{{- define "weir.certificateSecret" -}}
{{- $root := index . 0 -}}
{{- $tls := get $root.Values.tls (index . 1) -}}
{{- $tls.secret | default (include "weir.name" (list $root "tls")) -}}
{{- end -}}

{{/* Returns a list of the secrets to mount, each with its name, the volume, the path below /etc/weir, and its keys with their files. */}}
{{- define "weir.secrets" -}}
{{- $root := . -}}
{{- range $listener := list "grpc" "http" "resp" -}}
{{- $tls := get $root.Values.tls $listener -}}
{{- if $tls.enabled }}
- { volume: {{ $listener }}-tls, path: tls/{{ $listener }}, secret: {{ include "weir.certificateSecret" (list $root $listener) | quote }}, items: { tls.crt: tls.crt, tls.key: tls.key } }
{{- with $tls.clientCaSecret }}
- { volume: {{ $listener }}-client-ca, path: tls/{{ $listener }}-client-ca, secret: {{ quote . }}, items: { ca.crt: ca.crt } }
{{- end }}
{{- end }}
{{- end }}
{{- if eq .Values.rules.source "xds" }}
{{- include "weir.clientSecrets" (list "xds" .Values.rules.xds.tls) }}
{{- end }}
{{- if eq .Values.store.kind "bundled" }}
- {{ include "weir.storePassword" . }}
{{- end }}
{{- if eq .Values.store.kind "redis" }}
{{- with .Values.store.redis }}
{{- include "weir.clientSecrets" (list "redis" .tls) }}
{{- if .existingSecret }}
- { volume: redis-password, path: secrets/redis, secret: {{ quote .existingSecret }}, items: { {{ quote .passwordKey }}: password } }
{{- end }}
{{- if and (eq .topology "sentinel") .sentinel.existingSecret }}
- { volume: sentinel-password, path: secrets/sentinel, secret: {{ quote .sentinel.existingSecret }}, items: { {{ quote .sentinel.passwordKey }}: password } }
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.resp.existingSecret }}
- { volume: resp-password, path: secrets/resp, secret: {{ quote . }}, items: { {{ quote $root.Values.resp.passwordKey }}: password } }
{{- end }}
{{- with .Values.debug }}
{{- if .existingSecret }}
- { volume: debug-tokens, path: secrets/debug, secret: {{ quote .existingSecret }}, items: {{ include "weir.tokenFiles" . }} }
{{- end }}
{{- end }}
{{- end -}}

{{/* Returns the element of weir.secrets with the password of the bundled store. */}}
{{- define "weir.storePassword" -}}
{ volume: redis-password, path: secrets/redis, secret: {{ .Values.store.bundled.existingSecret | default (include "weir.name" (list . "store")) | quote }}, items: { password: password } }
{{- end -}}

{{/* Returns the keys of the secret with tokens, with their files. */}}
{{- define "weir.tokenFiles" -}}
{{- $files := dict -}}
{{- if .readTokenKey }}{{ $_ := set $files .readTokenKey "read-token" }}{{ end -}}
{{- if .writeTokenKey }}{{ $_ := set $files .writeTokenKey "write-token" }}{{ end -}}
{{- toJson $files -}}
{{- end -}}

{{/* Returns the secrets of a TLS client. Takes a list: a name, its values. */}}
{{- define "weir.clientSecrets" -}}
{{- $name := index . 0 -}}
{{- with (index . 1).caSecret }}
- { volume: {{ $name }}-ca, path: tls/{{ $name }}-ca, secret: {{ quote . }}, items: { ca.crt: ca.crt } }
{{- end }}
{{- with (index . 1).clientSecret }}
- { volume: {{ $name }}-client, path: tls/{{ $name }}-client, secret: {{ quote . }}, items: { tls.crt: tls.crt, tls.key: tls.key } }
{{- end }}
{{- end -}}

{{/* Returns the volume of a secret. Takes a list: the root context, an element of weir.secrets. */}}
{{- define "weir.secretVolume" -}}
{{- $fsGroup := dig "fsGroup" "" ((index . 0).Values.podSecurityContext | default dict) -}}
{{- with index . 1 -}}
- name: {{ .volume }}
  secret:
    secretName: {{ quote .secret }}
    # Without a group for volumes, the files belong to root; only this container can read them.
    defaultMode: {{ ternary "0440" "0444" (not (empty $fsGroup)) }}
    items:
      {{- range $key, $file := .items }}
      - { key: {{ quote $key }}, path: {{ quote $file }} }
      {{- end }}
{{- end -}}
{{- end -}}

{{- define "weir.volumes" -}}
- name: settings
  configMap:
    name: {{ include "weir.name" (list . "settings") | quote }}
{{- if ne .Values.rules.source "xds" }}
- name: rules
  configMap:
    name: {{ ternary .Values.rules.existingConfigMap (include "weir.name" (list . "rules")) (eq .Values.rules.source "configMap") | quote }}
{{- end }}
{{- with include "weir.overlayConfigMap" . }}
- name: overlay
  configMap:
    name: {{ quote . }}
{{- end }}
{{- range include "weir.secrets" . | fromYamlArray }}
{{ include "weir.secretVolume" (list $ .) }}
{{- end }}
{{- with .Values.controls.existingClaim }}
- name: controls
  persistentVolumeClaim:
    claimName: {{ quote . }}
{{- end }}
{{- if eq .Values.store.kind "disk" }}
{{- with .Values.store.disk.existingClaim }}
- name: data
  persistentVolumeClaim:
    claimName: {{ quote . }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "weir.volumeMounts" -}}
- { name: settings, mountPath: /etc/weir/settings, readOnly: true }
{{- if ne .Values.rules.source "xds" }}
- { name: rules, mountPath: /etc/weir/rules, readOnly: true }
{{- end }}
{{- if include "weir.overlayConfigMap" . }}
- { name: overlay, mountPath: /etc/weir/overlay, readOnly: true }
{{- end }}
{{- range include "weir.secrets" . | fromYamlArray }}
- { name: {{ .volume }}, mountPath: /etc/weir/{{ .path }}, readOnly: true }
{{- end }}
{{- if .Values.controls.existingClaim }}
- { name: controls, mountPath: /var/lib/weir }
{{- end }}
{{- if eq .Values.store.kind "disk" }}
- { name: data, mountPath: /var/lib/weir }
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
