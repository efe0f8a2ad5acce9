//! Resources of the user in the release.

use std::fs;

use serde_json::{Value, json};

use crate::helm::{Helm, chart_directory};
use crate::manifests::Read;

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
fn names_that_the_chart_renders_are_refused() {
    let Some(helm) = Helm::newest() else { return };
    for file in ["everything", "defaults", "disk", "xds"] {
        let release = helm.chart().file(file).values("extraObjects: []").render();
        for (name, resource) in &release.resources {
            let (api, kind) = (&resource["apiVersion"], &resource["kind"]);
            let own = &resource["metadata"]["name"];
            let object = json!({ "apiVersion": api, "kind": kind, "metadata": { "name": own } });
            let values = json!({ "extraObjects": [object] }).to_string();
            let chart = helm.chart().file(file).values(&values);
            let message = chart.try_render().expect_err(name);
            let words = format!("extraObjects has the {} {}", kind.text(), own.text());
            assert!(message.contains(&words), "{words} in {message}");
        }
    }
}

#[test]
fn other_kinds_groups_and_namespaces_may_have_the_name() {
    let Some(helm) = Helm::newest() else { return };
    let object = |api: &str, kind: &str, metadata: Value| json!({ "apiVersion": api, "kind": kind, "metadata": metadata });
    let settings = json!({ "name": "weir-settings" });
    for accepted in [
        object("v1", "Secret", settings.clone()),
        object("serving.example.com/v1", "ConfigMap", settings),
        object("v1", "ConfigMap", json!({ "name": "weir-settings", "namespace": "other" })),
        // Not rendered with these values.
        object("v1", "ConfigMap", json!({ "name": "weir-overlay" })),
    ] {
        let values = json!({ "extraObjects": [accepted] }).to_string();
        assert!(helm.chart().values(&values).try_text().is_ok(), "{values}");
    }
    let twice = object("v1", "ConfigMap", json!({ "name": "a" }));
    // A condition that is false leaves nothing.
    let conditional = "{{- if .Values.resp.enabled }}\nkind: X\n{{- end }}";
    let values =
        json!({ "extraObjects": [conditional, format!("# none\n---\n{twice}")] }).to_string();
    let text = helm.chart().values(&values).try_text().unwrap();
    assert_eq!(text.matches("extra-objects.yaml").count(), 1, "{text}");
    for (objects, words) in [
        (json!([twice, twice]), "extraObjects has the ConfigMap a"),
        (json!([{ "kind": "ConfigMap" }]), "without apiVersion, kind or metadata.name"),
        (json!(["not: an object"]), "without apiVersion, kind or metadata.name"),
        (
            json!([{ "apiVersion": "v1", "kind": "ConfigMap", "metadata": "a" }]),
            "without apiVersion, kind or metadata.name",
        ),
        (
            json!([object("v1", "Service", json!({ "name": "weir", "namespace": "" }))]),
            "the Service weir",
        ),
        (
            json!([format!(
                "{}\n---\n{}",
                twice,
                object("v1", "Service", json!({ "name": "weir" }))
            )]),
            "the Service weir",
        ),
        // A version is not a group.
        (
            json!([object("apps/v1beta9", "Deployment", json!({ "name": "weir" }))]),
            "the Deployment weir",
        ),
        (
            json!([object(
                "v1",
                "ConfigMap",
                json!({ "name": "weir-settings", "namespace": "limits" })
            )]),
            "the ConfigMap weir-settings",
        ),
    ] {
        let values = json!({ "extraObjects": objects }).to_string();
        let message = helm.chart().values(&values).try_render().expect_err(&values);
        assert!(message.contains(words), "{words} in {message}");
    }
}

#[test]
fn every_template_is_compared() {
    let templates = chart_directory().join("templates");
    let list = fs::read_to_string(templates.join("_objects.tpl")).unwrap();
    let (_, list) = list.split_once("{{- define \"weir.templates\" -}}\n").unwrap();
    let (list, _) = list.split_once("{{- end -}}").unwrap();
    let mut listed: Vec<&str> = list.lines().map(|line| line.strip_prefix("- ").unwrap()).collect();
    listed.push("extra-objects.yaml");
    listed.sort_unstable();
    let mut found = Vec::new();
    for directory in ["", "store/", "tests/"] {
        for file in fs::read_dir(templates.join(directory)).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".yaml") {
                found.push(format!("{directory}{name}"));
            }
        }
    }
    found.sort_unstable();
    assert_eq!(listed, found);
}
