//! Replicas that the chart, an autoscaler, or something else counts.

use serde_json::json;

use crate::api_server::ApiServer;
use crate::helm::{Helm, NAMESPACE};
use crate::manifests::Read;
use crate::start::every_secret;

#[test]
fn without_a_replica_count_something_else_scales() {
    for helm in Helm::all() {
        let release = helm.render_file("keda");
        assert_eq!(release.get("Deployment")["spec"].get("replicas"), None);
        assert_eq!(release.of_kind("HorizontalPodAutoscaler").count(), 0);
        assert_eq!(release.of_kind("PodDisruptionBudget").count(), 1);
        assert_eq!(every_secret(&release).settings()["store.replicas"], "30");
        // A single replica at most.
        let one = "settings: { store: { replicas: 1 } }";
        let release = helm.chart().file("keda").values(one).render();
        assert_eq!(release.of_kind("PodDisruptionBudget").count(), 0);
        // With the chart's autoscaler, the number follows it.
        let values = "replicaCount: null\nautoscaling: { enabled: true, maxReplicas: 7 }";
        let release = helm.render(values);
        assert_eq!(release.get("Deployment")["spec"].get("replicas"), None);
        assert_eq!(every_secret(&release).settings()["store.replicas"], "7");
    }
}

/// Helm keeps what an upgrade renders, and a rollback would set the number of that day.
#[test]
fn no_revision_has_the_number_of_the_cluster() {
    let server = ApiServer::start();
    let deployment = json!({ "kind": "Deployment", "apiVersion": "apps/v1",
        "metadata": { "name": "weir", "namespace": NAMESPACE }, "spec": { "replicas": 7 } });
    server.add(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/weir"), deployment);
    for helm in Helm::all() {
        for values in [
            "autoscaling: { enabled: true }",
            "replicaCount: null\nsettings: { store: { replicas: 9 } }",
        ] {
            let upgrade = helm.chart().values(values).arguments(&server.arguments());
            let upgrade = upgrade.argument("--is-upgrade").render_again().unwrap();
            let replicas = upgrade.get("Deployment")["spec"].get("replicas");
            assert_eq!(replicas, None, "{helm:?}: {values}");
        }
    }
}

#[test]
fn the_largest_number_of_replicas_must_be_known() {
    for helm in Helm::all() {
        for (values, words) in [
            ("replicaCount: null", "set it if replicaCount is null"),
            (
                "replicaCount: null\nstore: { kind: memory }\nsettings: { store: { replicas: 1 } }",
                "replicaCount=1, or",
            ),
            (
                "replicaCount: null\nautoscaling: { enabled: true }\nsettings: { store: { replicas: 9 } }",
                "and only then",
            ),
            (
                "replicaCount: null\nsettings: { store: { replicas: 9 } }\n\
                 extraEnv: [{ name: WEIR__STORE__REPLICAS, value: '8' }]",
                "unset: use the value replicaCount",
            ),
        ] {
            let message = helm.chart().values(values).try_render().expect_err(values);
            assert!(message.contains(words), "{words} in {message}");
        }
    }
}

#[test]
fn the_autoscaler_takes_further_metrics_and_a_behavior() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render_file("everything");
    let scaler = &release.get("HorizontalPodAutoscaler")["spec"];
    let metrics = scaler["metrics"].list();
    assert_eq!(metrics.len(), 2);
    assert_eq!(metrics[0]["resource"]["target"]["averageUtilization"], 70);
    assert_eq!(metrics[1]["pods"]["metric"]["name"], "weir_requests");
    assert_eq!(scaler["behavior"], json!({ "scaleDown": { "stabilizationWindowSeconds": 600 } }));
    assert_eq!(
        helm.render("autoscaling: { enabled: true }").get("HorizontalPodAutoscaler")["spec"]
            .get("behavior"),
        None
    );

    let own = "autoscaling: { targetCPUUtilizationPercentage: null }";
    let release = helm.chart().file("everything").values(own).render();
    let metrics = release.get("HorizontalPodAutoscaler")["spec"]["metrics"].list();
    assert_eq!(metrics.len(), 1, "without CPU: {metrics:?}");
    let none = "autoscaling: { enabled: true, targetCPUUtilizationPercentage: null }";
    let refused = helm.chart().values(none).try_render().expect_err("no metric");
    assert!(refused.contains("/autoscaling/metrics"), "{refused}");
}
