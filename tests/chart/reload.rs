//! Changed rules are loaded without a restart, and changed settings restart the pods.

use crate::helm::Helm;
use crate::kubelet::Node;
use crate::manifests::Read;
use crate::start::{RULES, allows, wait_until_ready};
use crate::support::wait_for;

#[test]
fn changed_rules_are_loaded_from_the_mount() {
    let Some(helm) = Helm::newest() else { return };
    let before = helm.chart().file("memory").values(RULES).render();
    let changed = RULES.replace("requests_per_unit: 1", "requests_per_unit: 1000");
    let after = helm.chart().file("memory").values(&changed).render();
    assert_ne!(before.find("ConfigMap/weir-rules"), after.find("ConfigMap/weir-rules"));
    assert_eq!(before.get("Deployment"), after.get("Deployment"), "no pod is restarted");

    let node = Node::new(&before);
    let mut running = node.start();
    wait_until_ready(&running);
    assert!(allows(running.http, "ann"));
    assert!(!allows(running.http, "ann"));
    let rules = after.find("ConfigMap/weir-rules")["data"]["shop.yaml"].text();
    running.node.set_config_map("weir-rules", &[("shop.yaml", rules)]);
    running.node.mount();
    wait_for("the new limit applies", || allows(running.http, "ann").then_some(()));
    assert!(running.runs());
}

#[test]
fn a_list_is_beside_the_rules() {
    let Some(helm) = Helm::newest() else { return };
    let rule = |keys: &str, count: u32| {
        format!("- {{ key: user, {keys}rate_limit: {{ unit: year, requests_per_unit: {count} }} }}")
    };
    let descriptors = [rule("", 1000), rule("values_file: blocked.txt, ", 0)].join("\n      ");
    let values = format!(
        "rules:\n  files:\n    shop.yaml: |\n      domain: shop\n      descriptors:\n      {descriptors}\n    \
         blocked.txt: ann\n"
    );
    let release = helm.chart().file("memory").values(&values).render();
    let mut running = Node::new(&release).start();
    wait_until_ready(&running);
    assert!(!allows(running.http, "ann") && allows(running.http, "bob"));
    let rules = release.find("ConfigMap/weir-rules")["data"]["shop.yaml"].text();
    let files = [("shop.yaml", rules), ("blocked.txt", "bob")];
    running.node.set_config_map("weir-rules", &files);
    running.node.mount();
    wait_for("the new list applies", || allows(running.http, "ann").then_some(()));
    assert!(!allows(running.http, "bob") && running.runs());
}

#[test]
fn a_broken_change_keeps_the_old_rules() {
    let Some(helm) = Helm::newest() else { return };
    let node = Node::new(&helm.chart().file("memory").values(RULES).render());
    let mut running = node.start();
    wait_until_ready(&running);
    running.node.set_config_map("weir-rules", &[("shop.yaml", "domain: [")]);
    running.node.mount();
    running.until_said("shop.yaml");
    assert!(allows(running.http, "ann"));
    assert!(!allows(running.http, "ann"));
}

#[test]
fn changed_settings_restart_the_pods() {
    let Some(helm) = Helm::newest() else { return };
    let template = |values: &str| {
        let release = helm.render(values);
        release.get("Deployment")["spec"]["template"].clone()
    };
    let before = template("");
    for values in [
        "settings: { log: { level: debug } }",
        "store: { onFailure: allow }",
        "replicaCount: 3",
        "drain: { delay: 6s }",
        "rules: { source: xds, xds: { url: 'management:18000' } }",
    ] {
        assert_ne!(before["metadata"], template(values)["metadata"], "{values}");
    }
    for values in [
        "service: { type: LoadBalancer, ports: { grpc: 80 } }",
        "metrics: { monitor: { kind: ServiceMonitor }, dashboard: { enabled: true } }",
        "networkPolicy: { enabled: true }",
        "podDisruptionBudget: { enabled: false }",
        "commonLabels: {}",
    ] {
        assert_eq!(before, template(values), "{values}");
    }
}
