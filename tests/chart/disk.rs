//! One replica that keeps counters and controls on a volume.

use serde_json::json;

use crate::helm::Helm;
use crate::kubelet::Node;
use crate::start::{RULES, allows, wait_until_ready};
use crate::support::http;

#[test]
fn a_stateful_set_of_one_pod_has_a_volume_of_its_own() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render_file("disk");
    assert!(!release.kinds().contains(&"Deployment"), "{:?}", release.kinds());
    let set = &release.get("StatefulSet")["spec"];
    assert_eq!(set["replicas"], 1);
    let claim = &set["volumeClaimTemplates"][0];
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
    assert_eq!(set["selector"]["matchLabels"], release.get("Service")["spec"]["selector"]);

    let values = "replicaCount: 1\nstore: {kind: disk, disk: {existingClaim: counters}}";
    let release = helm.chart().values(values).render();
    assert!(release.get("StatefulSet")["spec"].get("volumeClaimTemplates").is_none());
    let volumes = release.pod()["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "data").unwrap();
    assert_eq!(volume["persistentVolumeClaim"], json!({"claimName": "counters"}));
}

#[test]
fn counters_and_controls_outlive_the_pod() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.chart().file("disk").values(RULES).render();
    let running = Node::new(&release).start();
    wait_until_ready(&running);
    assert!(allows(running.http, "ann"));
    let body = br#"{"domain":"shop","entries":[{"key":"user","value":"eve"}],"action":"block"}"#;
    let headers = [("host", "localhost"), ("content-type", "application/json")];
    let put = http::ask(running.debug, "PUT", "/v1/controls/b", &headers, body);
    assert_eq!(put.expect("an answer").status, 200);

    let running = running.replace();
    wait_until_ready(&running);
    assert!(!allows(running.http, "ann") && !allows(running.http, "eve"));
    assert!(allows(running.http, "bob"));
}
