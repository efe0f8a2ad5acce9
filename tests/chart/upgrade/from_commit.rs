//! An upgrade from the chart of another commit, with the values that are valid there. `scripts/test-upgrade`
//! names its checkout in `WEIR_OLD_CHECKOUT`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::helm::{Helm, Rendering};
use crate::manifests::Manifests;
use crate::support::markdown;

/// The fields of a StatefulSet that Kubernetes changes. It refuses all others.
const CHANGEABLE: [&str; 7] = [
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "replicas",
    "revisionHistoryLimit",
    "template",
    "updateStrategy",
];

/// Returns what must not change in an upgrade.
fn fixed(resource: &Value) -> Value {
    let spec = &resource["spec"];
    match resource["kind"].as_str() {
        // A change of the strategy's type is refused beside the fields of the other, which the cluster has.
        Some("Deployment") => json!([spec["selector"], spec["strategy"]["type"]]),
        Some("StatefulSet") => {
            let mut spec = spec.clone();
            spec.as_object_mut().expect("a map").retain(|name, _| !CHANGEABLE.contains(&&**name));
            spec
        }
        Some("PersistentVolumeClaim") => spec.clone(),
        // Of the pods before and after, as long as there are both.
        Some("Service") => json!([spec["clusterIP"], spec["selector"]]),
        _ => Value::Null,
    }
}

/// Returns the label `job` of the time series that the monitors of a release cause.
fn jobs(release: &Manifests) -> BTreeSet<String> {
    let mut jobs = BTreeSet::new();
    for monitor in release.of_kind("ServiceMonitor") {
        let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().expect("labels");
        let label = monitor["spec"]["jobLabel"].as_str();
        for service in release.of_kind("Service") {
            let labels = &service["metadata"]["labels"];
            if !wanted.iter().all(|(name, value)| labels[name] == *value) {
                continue;
            }
            let name = &service["metadata"]["name"];
            let job = label.map_or(name, |label| &labels[label]);
            jobs.insert(job.as_str().expect("a name").to_owned());
        }
        let endpoints = monitor["spec"]["endpoints"].as_array().into_iter().flatten();
        let relabelings = endpoints.flat_map(|it| it["relabelings"].as_array()).flatten();
        for relabeling in relabelings.filter(|relabeling| relabeling["targetLabel"] == "job") {
            jobs = [relabeling["replacement"].as_str().expect("a name").to_owned()].into();
        }
    }
    jobs
}

/// Returns what an upgrade from one to the other would break.
fn broken(before: &Manifests, after: &Manifests) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, old) in &before.resources {
        let Some(new) = after.resources.get(name) else {
            broken.push(format!("{name} is deleted"));
            continue;
        };
        let (old, new) = (fixed(old), fixed(new));
        if old != new {
            broken.push(format!("{name} changes from {old} to {new}"));
        }
    }
    for (name, resource) in &after.resources {
        let selector = &resource["spec"]["selector"]["matchLabels"];
        let labels = &resource["spec"]["template"]["metadata"]["labels"];
        for (key, value) in
            selector.as_object().filter(|_| labels.is_object()).into_iter().flatten()
        {
            if labels[key] != *value {
                broken.push(format!("{name} does not select its pods: {key} is {}", labels[key]));
            }
        }
    }
    let (old, new) = (jobs(before), jobs(after));
    if old != new {
        broken.push(format!("the label job changes from {old:?} to {new:?}"));
    }
    broken
}

/// Returns the value files and the blocks of the pages of a checkout, each with its place.
fn values(checkout: &Path) -> Vec<(String, String)> {
    let mut values = Vec::new();
    for directory in
        ["tests/chart/values", "examples/kubernetes", "examples/istio", "examples/redis-iam"]
    {
        let files = fs::read_dir(checkout.join(directory)).into_iter().flatten();
        let paths = files.map(|file| file.expect("a file").path());
        let is_values = |path: &PathBuf| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            name.ends_with(".yaml") && (directory.starts_with("tests") || name.contains("values"))
        };
        values.extend(
            paths.filter(is_values).map(|path| {
                (path.display().to_string(), fs::read_to_string(&path).expect("a text"))
            }),
        );
    }
    for page in ["helm/weir/README.md", "docs/install.md", "docs/redis.md"] {
        let text = fs::read_to_string(checkout.join(page)).unwrap_or_default();
        let blocks = markdown::blocks_of(&text, "yaml").into_iter();
        for block in blocks.filter(|block| !block.text.starts_with("domain:")) {
            values.push((format!("{page}:{}", block.line), block.text));
        }
    }
    values.sort();
    values
}

#[test]
fn the_chart_of_another_commit_can_be_upgraded() {
    let Some(checkout) = std::env::var_os("WEIR_OLD_CHECKOUT").map(PathBuf::from) else { return };
    let helm = Helm::newest().expect("Helm renders both charts: scripts/install-helm");
    let chart = checkout.join("helm/weir");
    let (mut compared, mut failures) = (0, Vec::new());
    for (place, values) in values(&checkout) {
        for release in ["weir", "prod"] {
            let today = helm.chart().release(release).values(&values);
            let render = |chart: Rendering| chart.try_render();
            // A block may be a part, which neither chart accepts alone.
            let Ok(before) = render(today.clone().chart(&chart)) else { continue };
            compared += 1;
            match render(today) {
                Ok(after) => {
                    let found = broken(&before, &after);
                    failures
                        .extend(found.into_iter().map(|it| format!("{place}: {release}: {it}")));
                }
                Err(error) => failures.push(format!("{place}: it is refused now: {error}")),
            }
        }
    }
    println!("{compared} releases of {} compared", chart.display());
    assert!(compared > 40, "only {compared} releases can be rendered with {}", chart.display());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn what_breaks_an_upgrade_is_found() {
    let release = |edit: fn(&mut Value)| {
        let labels = json!({ "app": "weir" });
        let workload = json!({
            "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels } },
            "replicas": 1, "serviceName": "weir",
        });
        let mut resources = json!([
            { "kind": "StatefulSet", "metadata": { "name": "weir" }, "spec": workload },
            { "kind": "Service", "metadata": { "name": "metrics", "labels": labels }, "spec": {} },
            { "kind": "ServiceMonitor", "metadata": { "name": "weir" },
              "spec": { "selector": { "matchLabels": labels }, "endpoints": [{}] } },
        ]);
        edit(&mut resources);
        let texts = resources.as_array().unwrap().iter().map(|it| format!("---\n{it}\n"));
        Manifests::parse(&texts.collect::<String>())
    };
    let before = release(|_| ());
    let broken_by = |edit| broken(&before, &release(edit)).join("; ");
    assert_eq!(broken_by(|it| it[0]["spec"]["replicas"] = json!(2)), "");
    let found = broken_by(|it| it[0]["spec"]["serviceName"] = json!("other"));
    assert!(found.starts_with("StatefulSet/weir changes from "), "{found}");
    let found = broken_by(|it| it[0]["spec"]["template"]["metadata"]["labels"] = json!({}));
    assert_eq!(found, "StatefulSet/weir does not select its pods: app is null");
    let found = broken_by(|it| it[1]["spec"]["clusterIP"] = json!("None"));
    assert!(found.starts_with("Service/metrics changes from "), "{found}");
    let found = broken_by(|it| it[2]["spec"]["jobLabel"] = json!("app"));
    assert_eq!(found, r#"the label job changes from {"metrics"} to {"weir"}"#);
    let relabeling = |it: &mut Value| {
        it[2]["spec"]["endpoints"][0]["relabelings"] =
            json!([{ "targetLabel": "job", "replacement": "metrics" }]);
    };
    assert_eq!(broken_by(relabeling), "");
    let found = broken_by(|it| drop(it.as_array_mut().unwrap().remove(1)));
    assert!(found.starts_with("Service/metrics is deleted; "), "{found}");
}
