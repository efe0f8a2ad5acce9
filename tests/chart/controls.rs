//! The API of the debug port: tokens from a secret, and controls that a volume keeps.

use crate::helm::Helm;
use crate::kubelet::{Node, Running};
use crate::manifests::Read;
use crate::start::{RULES, allows, wait_until_ready};
use crate::support::{http, wait_for};

const BLOCK: &[u8] =
    br#"{"domain":"shop","entries":[{"key":"user","value":"ann"}],"action":"block"}"#;

/// Sends a request to the API. Returns the status.
fn ask(running: &Running, method: &str, path: &str, token: &str, body: &[u8]) -> u16 {
    let token = format!("Bearer {token}");
    let json = ("content-type", "application/json");
    let headers = [("host", "localhost"), json, ("authorization", &token)];
    let answer = http::ask(running.debug, method, path, &headers, body);
    answer.expect("an answer").status
}

#[test]
fn tokens_of_a_secret_are_needed_and_replaced_without_a_restart() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.chart().file("tokens").values(RULES).render();
    let tokens = |read, write| [("read-token", read), ("write-token", write)];
    let node = Node::new(&release).secret("weir-tokens", &tokens("r1", "w1"));
    let mut running = node.start();
    wait_until_ready(&running);
    let read = |running: &Running, token| ask(running, "GET", "/v1/controls", token, b"");
    let write = |running: &Running, token| ask(running, "PUT", "/v1/controls/b", token, BLOCK);
    assert_eq!([read(&running, ""), read(&running, "r1"), read(&running, "w1")], [401, 200, 200]);
    assert_eq!(
        [write(&running, ""), write(&running, "r1"), write(&running, "w1")],
        [401, 403, 200]
    );
    assert!(!allows(running.http, "ann"));

    running.node = running.node.secret("weir-tokens", &tokens("r2", "w2"));
    running.node.mount();
    // Each file is followed by itself.
    wait_for("the new tokens are valid", || {
        (read(&running, "r2") == 200 && write(&running, "w2") == 200).then_some(())
    });
    assert_eq!([read(&running, "r1"), write(&running, "w1")], [401, 401]);
}

#[test]
fn controls_on_a_volume_outlive_the_pod() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.chart().file("tokens").values(RULES).render();
    assert_eq!(release.get("Deployment")["spec"]["strategy"]["type"], "Recreate");
    let claim = &release.pod()["volumes"].named("controls")["persistentVolumeClaim"];
    assert_eq!(claim["claimName"], "weir-controls");
    let node =
        Node::new(&release).secret("weir-tokens", &[("read-token", "r"), ("write-token", "w")]);
    let running = node.start();
    wait_until_ready(&running);
    assert_eq!(ask(&running, "PUT", "/v1/controls/b", "w", BLOCK), 200);
    let running = running.restart();
    wait_until_ready(&running);
    assert_eq!(ask(&running, "GET", "/v1/controls/b", "r", b""), 200);
    assert!(!allows(running.http, "ann") && allows(running.http, "bob"));
}

#[test]
fn without_a_claim_a_new_replica_is_ready_before_an_old_one_stops() {
    let Some(helm) = Helm::newest() else { return };
    let strategy = helm.render("").get("Deployment")["spec"]["strategy"].clone();
    assert_eq!(strategy["rollingUpdate"]["maxUnavailable"], 0);
    assert!(strategy.get("type").is_none(), "{strategy}");
}
