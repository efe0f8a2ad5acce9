//! The Redis protocol: ports, the password of a secret, TLS.

use std::process::Command;

use serde_json::json;

use crate::helm::Helm;
use crate::kubelet::Node;
use crate::manifests::Read;
use crate::start::{RULES, wait_until_ready};
use crate::support::certificates::Authority;

#[test]
fn redis_clients_have_a_port_if_they_are_served() {
    let Some(helm) = Helm::newest() else { return };
    let without = helm.render("networkPolicy: { enabled: true }");
    assert!(!without.text.contains("resp"), "{}", without.text);

    let release = helm.chart().file("resp").render();
    assert_eq!(
        *release.get("Service")["spec"]["ports"].named("resp"),
        json!({"name": "resp", "port": 6379, "targetPort": "resp", "appProtocol": "tls"})
    );
    // Such a Service has no proxy that translates ports.
    let headless = &release.find("Service/weir-headless")["spec"];
    assert_eq!(headless["ports"].named("resp")["port"], 6380);
    assert_eq!(release.container()["ports"].named("resp")["containerPort"], 6380);
    let ingress = &release.get("NetworkPolicy")["spec"]["ingress"].list()[0]["ports"];
    assert!(ingress.list().contains(&json!({"port": "resp"})), "{ingress}");
    let plain = helm.render("resp: { enabled: true }");
    let port = plain.get("Service")["spec"]["ports"].named("resp");
    assert_eq!([&port["port"], &port["appProtocol"]], [&json!(6380), &json!("tcp")]);
}

#[test]
fn the_certificate_of_cert_manager_is_for_redis_clients_too() {
    let Some(helm) = Helm::newest() else { return };
    let values = "resp: { enabled: true }\ntls: { resp: { enabled: true }, \
                  certManager: { issuerRef: { name: internal } } }";
    let release = helm.render(values);
    let certificate = &release.find("Certificate/weir-tls")["spec"]["secretName"];
    let volume = release.pod()["volumes"].named("resp-tls");
    assert_eq!(volume["secret"]["secretName"], *certificate);
}

#[test]
fn redis_clients_are_served_with_tls_and_a_password() {
    const SERVER_NAME: &str = "weir.test";
    let Some(helm) = Helm::newest() else { return };
    let authority = Authority::new();
    let server = authority.sign(&[SERVER_NAME]);
    let release = helm.chart().file("resp").values(RULES).render();
    let node = Node::new(&release)
        .secret("weir-resp", &[("auth-token", "a password\n")])
        .secret("weir-server", &[("tls.crt", &server.cert), ("tls.key", &server.key)]);
    let running = node.start();
    wait_until_ready(&running);
    let port = running.resp.expect("a port for Redis clients").port().to_string();
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, &authority.pem).unwrap();
    let check = |more: &[&str]| {
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &port, "--no-auth-warning", "--tls"])
            .args(["--sni", SERVER_NAME, "--cacert", ca.to_str().unwrap()])
            .args(more)
            .args(["WEIR.CHECK", "shop", "1", "user", "ann"])
            .output()
            .expect("redis-cli");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(check(&[]).contains("NOAUTH"));
    assert!(check(&["-a", "a password"]).starts_with("1\n0\n-1\n"));
    assert!(check(&["-a", "a password"]).starts_with("2\n0\n"));
}
