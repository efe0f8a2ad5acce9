//! Resources of the user in the release.

use serde_json::json;

use crate::helm::Helm;

#[test]
fn objects_and_texts_are_templates() {
    for helm in Helm::all() {
        let values = r#"
extraObjects:
  - apiVersion: v1
    kind: ConfigMap
    metadata: { name: "{{ .Release.Name }}-extra" }
    data: { address: '{{ include "weir.fullname" . }}:{{ .Values.service.ports.grpc }}' }
  - |
    apiVersion: v1
    kind: Secret
    metadata:
      name: {{ .Release.Name }}-login
    stringData:
      user: {{ .Values.image.repository | quote }}
"#;
        let release = helm.render(values);
        assert_eq!(release.find("ConfigMap/weir-extra")["data"]["address"], "weir:8081");
        assert_eq!(release.find("Secret/weir-login")["stringData"]["user"], "weir");
    }
}

#[test]
fn a_condition_that_is_false_leaves_nothing() {
    let Some(helm) = Helm::newest() else { return };
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let conditional = "{{- if .Values.resp.enabled }}\nkind: X\n{{- end }}";
    let values = json!({ "extraObjects": [conditional, format!("# none\n---\n{object}")] });
    let release = helm.render(&values.to_string());
    assert_eq!(release.resources.len(), helm.render("").resources.len() + 1, "{}", release.text);
    release.find("ConfigMap/a");
}

#[test]
fn objects_have_a_kind_and_a_name() {
    let Some(helm) = Helm::newest() else { return };
    for (object, words) in [
        (json!({ "kind": "ConfigMap" }), "missing properties 'apiVersion', 'metadata'"),
        (
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": "a" }),
            "'/extraObjects/0/metadata': got string, want object",
        ),
        (
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} }),
            "missing property 'name'",
        ),
    ] {
        let values = json!({ "extraObjects": [object] }).to_string();
        let message = helm.chart().values(&values).try_render().expect_err(&values);
        assert!(message.contains(words), "{words} in {message}");
    }
}
