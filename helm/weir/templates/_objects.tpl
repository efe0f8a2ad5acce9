{{/* Resources by their names. */}}

{{/* Returns the templates that render a resource each. A test compares them with the files. */}}
{{- define "weir.templates" -}}
- certificate.yaml
- configmap-overlay.yaml
- configmap-rules.yaml
- configmap-settings.yaml
- dashboard.yaml
- deployment.yaml
- horizontalpodautoscaler.yaml
- networkpolicy.yaml
- poddisruptionbudget.yaml
- podmonitor.yaml
- prometheusrule.yaml
- service-headless.yaml
- service-metrics.yaml
- service.yaml
- serviceaccount.yaml
- servicemonitor.yaml
- statefulset.yaml
- store/deployment.yaml
- store/networkpolicy.yaml
- store/secret.yaml
- store/service.yaml
- tests/ready.yaml
{{- end -}}

{{/* Returns by what Kubernetes tells a resource from others: group, kind, namespace, name. Takes a list: the root context, the resource. */}}
{{- define "weir.objectKey" -}}
{{- $object := index . 1 -}}
{{- $namespace := $object.metadata.namespace | default (index . 0).Release.Namespace -}}
{{- printf "%s %s %s/%s" (regexReplaceAll "/?[^/]*$" $object.apiVersion "") $object.kind $namespace $object.metadata.name -}}
{{- end -}}
