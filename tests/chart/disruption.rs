//! Replicas: how many, where, and what may take them away.

use serde_json::json;

use crate::helm::Helm;
use crate::manifests::{Manifests, Read};
use crate::start::every_secret;

fn replicas_setting(release: &Manifests) -> String {
    every_secret(release).settings()["store.replicas"].clone()
}

#[test]
fn shares_of_limits_follow_the_largest_number_of_replicas() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render("");
    assert_eq!(release.get("Deployment")["spec"]["replicas"], 2);
    assert_eq!(replicas_setting(&release), "2");
    let release = helm.render("replicaCount: 5");
    assert_eq!(release.get("Deployment")["spec"]["replicas"], 5);
    assert_eq!(replicas_setting(&release), "5");

    let release = helm.render("replicaCount: 5\nautoscaling: { enabled: true, maxReplicas: 12 }");
    let scaler = &release.get("HorizontalPodAutoscaler")["spec"];
    assert_eq!((scaler["minReplicas"].int(), scaler["maxReplicas"].int()), (2, 12));
    assert_eq!(scaler["scaleTargetRef"]["name"], "weir");
    let replicas = release.get("Deployment")["spec"].get("replicas");
    assert_eq!(replicas, None, "an upgrade would undo the autoscaler's number");
    assert_eq!(replicas_setting(&release), "12");
}

#[test]
fn a_disruption_budget_protects_several_replicas() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render("");
    let budget = &release.get("PodDisruptionBudget")["spec"];
    assert_eq!(budget["maxUnavailable"], 1);
    assert_eq!(budget["selector"], release.get("Deployment")["spec"]["selector"]);
    for none in ["replicaCount: 1", "podDisruptionBudget: { enabled: false }"] {
        let release = helm.render(none);
        assert_eq!(release.of_kind("PodDisruptionBudget").count(), 0, "{none}");
    }
}

/// Where nodes lack the key of one constraint, the scheduler ignores them for all: a zone as a default would
/// put all replicas on one node.
#[test]
fn pods_are_spread_over_nodes_and_over_zones_if_asked() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render("");
    let selector = &release.get("Deployment")["spec"]["selector"];
    let constraint = |key: &str| {
        json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector, "matchLabelKeys": ["pod-template-hash"] })
    };
    let (node, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
    assert_eq!(release.pod()["topologySpreadConstraints"], json!([constraint(node)]));
    let values = [node, zone].map(|key| {
        format!("{{ maxSkew: 1, topologyKey: {key}, whenUnsatisfiable: ScheduleAnyway }}")
    });
    let both = helm.render(&format!("topologySpreadConstraints: [{}]", values.join(", ")));
    assert_eq!(
        both.pod()["topologySpreadConstraints"],
        json!([constraint(node), constraint(zone)])
    );
    let none = helm.render("topologySpreadConstraints: null");
    assert_eq!(none.pod().get("topologySpreadConstraints"), None);
    let own = helm.render(
        "topologySpreadConstraints: [{ maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, \
         labelSelector: { matchLabels: { a: b } } }]",
    );
    let own = own.pod()["topologySpreadConstraints"].list();
    assert_eq!(own[0]["labelSelector"], json!({ "matchLabels": { "a": "b" } }));
}

#[test]
fn a_rollout_never_has_fewer_replicas() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render("");
    let strategy = &release.get("Deployment")["spec"]["strategy"];
    assert_eq!(strategy["rollingUpdate"]["maxUnavailable"], 0);
}

#[test]
fn selectors_select_only_the_pods_of_weir() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render("networkPolicy: { enabled: true }");
    let deployment = &release.get("Deployment")["spec"];
    let selector = deployment["selector"]["matchLabels"].map();
    let selects = |labels: &serde_json::Value| {
        selector.iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    assert!(selects(&deployment["template"]["metadata"]["labels"]));
    let store = &release.find("Deployment/weir-store")["spec"]["template"]["metadata"]["labels"];
    assert!(!selects(store), "{store}");
    for test in release.of_kind("Pod") {
        assert!(!selects(&test["metadata"]["labels"]), "{test}");
    }
    assert_eq!(release.get("Service")["spec"]["selector"].map(), selector);
    assert_eq!(release.find("Service/weir-headless")["spec"]["selector"].map(), selector);
    let policy = &release.get("NetworkPolicy")["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"].map(), selector);
}

#[test]
fn services_have_the_ports_of_the_values() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render("service: { ports: { grpc: 80, http: 81 } }");
    let service = &release.get("Service")["spec"];
    assert_eq!(service["type"], "ClusterIP");
    assert_eq!(service["ports"].named("grpc")["port"], 80);
    assert_eq!(service["ports"].named("http")["port"], 81);
    let container = release.container();
    for (name, port) in [("grpc", 8081), ("http", 8080)] {
        let target = service["ports"].named(name)["targetPort"].text();
        assert_eq!(container["ports"].named(target)["containerPort"], port);
    }
    let headless = &release.find("Service/weir-headless")["spec"];
    assert_eq!(headless["clusterIP"], "None");
    // Such a Service has no proxy that translates ports.
    assert_eq!(headless["ports"].named("grpc")["port"], 8081);
    let without = helm.render("headlessService: { enabled: false }");
    assert!(!without.names().contains(&"Service/weir-headless"));
}
