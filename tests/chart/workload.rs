//! Values of the Deployment, the StatefulSet and their pods.

use serde_json::{Value, json};

use crate::helm::Helm;
use crate::manifests::Read;

#[test]
fn a_strategy_replaces_that_of_the_chart() {
    let Some(helm) = Helm::newest() else { return };
    let strategy = |values: &str| helm.render(values).get("Deployment")["spec"]["strategy"].clone();
    assert_eq!(strategy("strategy: { type: Recreate }"), json!({ "type": "Recreate" }));
    let surge = "strategy: { rollingUpdate: { maxSurge: 50%, maxUnavailable: 1 } }";
    let rolling = json!({ "rollingUpdate": { "maxSurge": "50%", "maxUnavailable": 1 } });
    assert_eq!(strategy(surge), rolling);
    let claim = "replicaCount: 1\nstore: { kind: memory }\ncontrols: { existingClaim: a }\n";
    assert_eq!(strategy(&format!("{claim}strategy: {{ type: Recreate }}"))["type"], "Recreate");
    for (values, words) in [
        (format!("{claim}strategy: {{ rollingUpdate: {{ maxSurge: 1 }} }}"), "type"),
        (
            "replicaCount: 1\nstore: { kind: disk }\nstrategy: { type: Recreate }".to_owned(),
            "unset: with store.kind=disk",
        ),
        ("strategy: { type: Canary }".to_owned(), "type"),
    ] {
        let message = helm.chart().values(&values).try_render().expect_err(&values);
        assert!(message.contains(words), "{words} in {message}");
    }
}

#[test]
fn both_kinds_have_annotations_and_a_history() {
    let Some(helm) = Helm::newest() else { return };
    for kind in ["", "replicaCount: 1\nstore: { kind: disk }\n"] {
        let own = "deploymentAnnotations: { reload: 'true' }\nrevisionHistoryLimit: 0";
        let release = helm.render(&format!("{kind}{own}"));
        let workload = release.workload();
        assert_eq!(workload["metadata"]["annotations"], json!({ "reload": "true" }));
        assert_eq!(workload["spec"]["revisionHistoryLimit"], 0);
        let pods = &workload["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(pods.get("reload"), None, "it would restart the pods");
    }
}

#[test]
fn probes_take_timings_and_keep_their_handlers() {
    let Some(helm) = Helm::newest() else { return };
    let default = helm.render("");
    let own = helm.render_file("everything");
    for (probe, timings) in [
        (
            "startupProbe",
            json!({ "initialDelaySeconds": 1, "periodSeconds": 1, "timeoutSeconds": 3, "failureThreshold": 30 }),
        ),
        ("readinessProbe", json!({ "periodSeconds": 2, "timeoutSeconds": 3 })),
        ("livenessProbe", json!({ "periodSeconds": 10, "timeoutSeconds": 10 })),
    ] {
        let (default, own) = (&default.container()[probe], &own.container()[probe]);
        // HTTP has TLS in that file, so that probes ask the debug port.
        let path = default["httpGet"]["path"].text();
        assert!(own["exec"]["command"].to_string().contains(path), "{probe}");
        for (name, value) in timings.as_object().unwrap() {
            assert_eq!(&own[name], value, "{probe}.{name}");
        }
        assert_eq!(own.as_object().unwrap().len(), timings.as_object().unwrap().len() + 1);
    }
    let handler = "readinessProbe: { httpGet: { path: /livez } }";
    helm.chart().values(handler).try_render().expect_err("the chart sets what a probe asks");
}

#[test]
fn pods_have_their_own_dns() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render_file("everything");
    let pod = release.pod();
    assert_eq!(pod["dnsPolicy"], "ClusterFirst");
    assert_eq!(pod["dnsConfig"]["options"].list()[0], json!({ "name": "ndots", "value": "1" }));
    assert_eq!(pod["hostAliases"], json!([{ "ip": "10.1.2.3", "hostnames": ["redis"] }]));
    for key in ["dnsPolicy", "dnsConfig", "hostAliases", "initContainers"] {
        assert_eq!(helm.render("").pod().get(key), None, "{key}");
    }
}

#[test]
fn containers_have_names_of_their_own() {
    let Some(helm) = Helm::newest() else { return };
    for values in [
        "extraContainers: [{ name: weir, image: a }]",
        "initContainers: [{ name: weir, image: a }]",
        "initContainers: [{ name: b, image: a }]\nextraContainers: [{ name: b, image: a }]",
    ] {
        let message = helm.chart().values(values).try_render().expect_err(values);
        assert!(message.contains("choose another name"), "{message}");
    }
}

#[test]
fn a_disruption_budget_takes_either_number() {
    let Some(helm) = Helm::newest() else { return };
    let budget = |values: &str| -> Value {
        let release = helm.render(&format!("replicaCount: 4\npodDisruptionBudget: {{ {values} }}"));
        release.get("PodDisruptionBudget")["spec"].clone()
    };
    for (values, available, unavailable) in [
        ("", None, Some(json!(1))),
        ("maxUnavailable: 2", None, Some(json!(2))),
        ("minAvailable: 3", Some(json!(3)), None),
        ("minAvailable: 80%", Some(json!("80%")), None),
        ("minAvailable: 3, maxUnavailable: null", Some(json!(3)), None),
    ] {
        let spec = budget(values);
        assert_eq!(spec.get("minAvailable"), available.as_ref(), "{values}");
        assert_eq!(spec.get("maxUnavailable"), unavailable.as_ref(), "{values}");
    }
    for values in
        ["minAvailable: 1, maxUnavailable: 50%", "maxUnavailable: null", "minAvailable: most"]
    {
        let values = format!("podDisruptionBudget: {{ {values} }}");
        helm.chart().values(&values).try_render().expect_err(&values);
    }
}
