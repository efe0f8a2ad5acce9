//! Overlays of the chart: the real binary loads them, and their changes without a restart.

use crate::helm::Helm;
use crate::kubelet::{Node, Running};
use crate::manifests::Read;
use crate::start::{allows, shop_resource, wait_until_ready};
use crate::support::management::Management;
use crate::support::{http, wait_for};

/// Allows each user as many requests at once. The rules allow one per year.
fn burst(requests: u32) -> String {
    format!(
        "patches:\n- match: {{ domain: shop, entries: [{{ key: user }}] }}\n  \
         set: {{ algorithm: gcra, burst: {requests} }}\n"
    )
}

/// Asserts that a user may send this many requests.
fn assert_allows(running: &Running, user: &str, requests: usize) {
    let allowed = (0..=requests).filter(|_| allows(running.http, user)).count();
    assert_eq!(allowed, requests, "{}", running.said());
}

/// Waits until an overlay with this many patches is active.
fn wait_for_patches(running: &Running, patches: u64) {
    wait_for(&format!("{patches} patches"), || {
        let status = http::get(running.debug, "/status").json();
        (status["overlay"]["patches"] == patches).then_some(())
    });
}

#[test]
fn overlays_are_loaded_and_their_changes_from_the_mount() {
    let Some(helm) = Helm::newest() else { return };
    let before = helm.render_file("overlay");
    let one = "rules: { overlay: { files: { quotes.overlay.yml: 'patches: []' } } }";
    let after = helm.chart().file("overlay").values(one).render();
    assert_ne!(before.find("ConfigMap/weir-overlay"), after.find("ConfigMap/weir-overlay"));
    assert_eq!(before.get("Deployment"), after.get("Deployment"), "no pod is restarted");

    let mut running = Node::new(&before).start();
    wait_until_ready(&running);
    wait_for_patches(&running, 2);
    assert_allows(&running, "ann", 2);

    let changed = burst(4);
    let data = after.find("ConfigMap/weir-overlay")["data"].map();
    let files = data.iter().map(|(name, text)| match &**name {
        "shop.overlay.yaml" => (&**name, &*changed),
        _ => (&**name, text.text()),
    });
    running.node.set_config_map("weir-overlay", &files.collect::<Vec<_>>());
    running.node.mount();
    wait_for_patches(&running, 1);
    assert_allows(&running, "bob", 4);
    assert!(running.runs());
}

#[test]
fn overlays_patch_rules_of_a_management_server() {
    let Some(helm) = Helm::newest() else { return };
    let management = Management::start();
    let node = Node::new(&helm.render_file("xds-overlay"))
        .address("management.infra:18000", &management.address.to_string())
        .config_map("team-overlay", &[("team.overlay.yaml", &burst(2))]);
    let mut running = node.start();
    management.sotw.next();
    management.set("1", vec![shop_resource()]);
    wait_until_ready(&running);
    assert_allows(&running, "ann", 2);

    let twice = burst(3) + "- { match: {}, set: { detailed_metric: true } }\n";
    running.node.set_config_map("team-overlay", &[("team.overlay.yaml", &twice)]);
    running.node.mount();
    wait_for_patches(&running, 2);
    assert_allows(&running, "bob", 3);
}
