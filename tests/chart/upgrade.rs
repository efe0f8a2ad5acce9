//! Upgrading from one value file to another changes only what it should.

mod from_commit;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::helm::Helm;
use crate::manifests::Manifests;

/// The paths of the pod template that change with the settings.
const CHECKSUM: &str = "Deployment/weir:spec.template.metadata.annotations.checksum/settings";

/// Returns the path of each value that differs.
fn difference(before: &Manifests, after: &Manifests) -> BTreeSet<String> {
    let names: BTreeSet<&String> = before.resources.keys().chain(after.resources.keys()).collect();
    let mut paths = BTreeSet::new();
    for name in names {
        match (before.resources.get(name), after.resources.get(name)) {
            (Some(before), Some(after)) => compare(&format!("{name}:"), before, after, &mut paths),
            (None, _) => assert!(paths.insert(format!("+{name}"))),
            (_, None) => assert!(paths.insert(format!("-{name}"))),
        }
    }
    paths
}

fn compare(path: &str, before: &Value, after: &Value, paths: &mut BTreeSet<String>) {
    if before == after {
        return;
    }
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        paths.insert(path.to_owned());
        return;
    };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let inner =
            if path.ends_with(':') { format!("{path}{key}") } else { format!("{path}.{key}") };
        compare(&inner, &before[key], &after[key], paths);
    }
}

/// Asserts that these paths differ, and no other.
fn assert_changes(before: &Manifests, after: &Manifests, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&path| path.to_owned()).collect();
    assert_eq!(difference(before, after), expected);
}

const SETTINGS: &str = "ConfigMap/weir-settings:data.weir.yaml";
const VOLUMES: &str = "Deployment/weir:spec.template.spec.volumes";
const CONTAINERS: &str = "Deployment/weir:spec.template.spec.containers";

#[test]
fn the_same_values_change_nothing() {
    let Some(helm) = Helm::newest() else { return };
    for file in ["defaults", "everything"] {
        // Nothing is random, and nothing depends on the time.
        let again = helm.chart().file(file).render_again().unwrap();
        assert_changes(&helm.render_file(file), &again, &[]);
    }
}

#[test]
fn from_the_bundled_store_to_redis() {
    let Some(helm) = Helm::newest() else { return };
    let (before, after) = (helm.render_file("defaults"), helm.render_file("redis-tls"));
    let store = ["-Deployment/weir-store", "-NetworkPolicy/weir-store", "-Service/weir-store"];
    let changes = [&store[..], &[SETTINGS, CHECKSUM, VOLUMES, CONTAINERS]].concat();
    assert_changes(&before, &after, &changes);
    // Back again.
    let back: Vec<String> =
        changes.iter().map(|it| it.replace('-', "+").replace("weir+", "weir-")).collect();
    assert_changes(&after, &before, &back.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn from_one_redis_to_another() {
    let Some(helm) = Helm::newest() else { return };
    let (before, after) = (helm.render_file("redis-tls"), helm.render_file("memorystore"));
    assert_changes(&before, &after, &[SETTINGS, CHECKSUM, VOLUMES, CONTAINERS]);
    // Another host: nothing but the settings.
    let other = "store: { redis: { url: 'other:6380' } }";
    let after = helm.chart().file("redis-tls").values(other).render();
    assert_changes(&before, &after, &[SETTINGS, CHECKSUM]);
}

#[test]
fn from_rules_in_values_to_a_config_map_and_to_xds() {
    let Some(helm) = Helm::newest() else { return };
    let inline = helm.render_file("defaults");
    let existing = helm.render_file("existing-config-map");
    assert_changes(&inline, &existing, &["-ConfigMap/weir-rules", VOLUMES]);
    let xds = helm.render_file("xds");
    let changes = ["-ConfigMap/weir-rules", SETTINGS, CHECKSUM, VOLUMES, CONTAINERS];
    assert_changes(&inline, &xds, &changes);
}

#[test]
fn a_new_rule_changes_one_config_map() {
    let Some(helm) = Helm::newest() else { return };
    let with = |rule: &str| helm.render(&format!("rules: {{ files: {{ a.yaml: '{rule}' }} }}"));
    let (before, after) = (with("domain: a"), with("domain: b"));
    assert_changes(&before, &after, &["ConfigMap/weir-rules:data.a.yaml"]);
}

#[test]
fn a_new_patch_changes_one_config_map() {
    let Some(helm) = Helm::newest() else { return };
    let with = |patches: &str| {
        let files = format!("{{ a.overlay.yaml: 'patches: {patches}' }}");
        helm.render(&format!("rules: {{ overlay: {{ files: {files} }} }}"))
    };
    let (before, after) = (with("[]"), with("[{ match: {}, set: { shadow_mode: true } }]"));
    assert_changes(&before, &after, &["ConfigMap/weir-overlay:data.a.overlay.yaml"]);
    let existing = helm.render("rules: { overlay: { existingConfigMap: team } }");
    assert_changes(&before, &existing, &["-ConfigMap/weir-overlay", VOLUMES]);
}

#[test]
fn switches_add_and_remove_their_resources() {
    let Some(helm) = Helm::newest() else { return };
    let before = helm.render("");
    let deployment = "Deployment/weir:spec.replicas";
    for (values, changes) in [
        ("metrics: { prometheusRule: { enabled: true } }", vec!["+PrometheusRule/weir"]),
        ("metrics: { monitor: { kind: PodMonitor } }", vec!["+PodMonitor/weir"]),
        ("metrics: { dashboard: { enabled: true } }", vec!["+ConfigMap/weir-dashboard"]),
        ("headlessService: { enabled: false }", vec!["-Service/weir-headless"]),
        ("podDisruptionBudget: { enabled: false }", vec!["-PodDisruptionBudget/weir"]),
        ("networkPolicy: { enabled: true }", vec!["+NetworkPolicy/weir"]),
        (
            "store: { bundled: { networkPolicy: { enabled: false } } }",
            vec!["-NetworkPolicy/weir-store"],
        ),
        ("replicaCount: 3", vec![deployment, SETTINGS, CHECKSUM]),
        (
            "rules: { overlay: { files: { a.overlay.yaml: 'patches: []' } } }",
            vec!["+ConfigMap/weir-overlay", SETTINGS, CHECKSUM, VOLUMES, CONTAINERS],
        ),
        ("service: { type: NodePort }", vec!["Service/weir:spec.type", "Service/weir:spec.ports"]),
        ("service: { type: NodePort, exposeHttp: true }", vec!["Service/weir:spec.type"]),
        ("image: { tag: next }", vec![CONTAINERS]),
        (
            "autoscaling: { enabled: true, maxReplicas: 2 }",
            vec!["+HorizontalPodAutoscaler/weir", deployment],
        ),
        ("settings: { log: { level: debug } }", vec![SETTINGS, CHECKSUM]),
        ("podLabels: { a: b }", vec!["Deployment/weir:spec.template.metadata.labels.a"]),
    ] {
        let after = helm.render(values);
        let found = difference(&before, &after);
        let without_test = found.iter().filter(|path| !path.starts_with("Pod/weir-test"));
        let expected: BTreeSet<&str> = changes.into_iter().collect();
        assert_eq!(without_test.map(String::as_str).collect::<BTreeSet<_>>(), expected, "{values}");
    }
}

#[test]
fn no_upgrade_changes_a_selector() {
    let Some(helm) = Helm::newest() else { return };
    // Kubernetes refuses it.
    let selector = helm.render("").workload()["spec"]["selector"].clone();
    for file in crate::helm::value_files() {
        assert_eq!(helm.render_file(&file).workload()["spec"]["selector"], selector, "{file}");
    }
}
