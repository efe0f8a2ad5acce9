//! The bundled store: its password, and who reaches it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::helm::{Helm, Rendering};
use crate::kubelet::{Node, STORE_PASSWORD};
use crate::manifests::{Manifests, Read};
use crate::start::{PATIENT, RULES, assert_limits};
use crate::support::redis::{self, Server};

/// Renders without a secret of the user.
fn without_secret(helm: &Helm) -> Rendering {
    helm.chart().argument("--set=store.bundled.existingSecret=")
}

#[test]
fn without_a_cluster_a_secret_is_needed() {
    for helm in Helm::all() {
        let message = without_secret(&helm).try_render().expect_err("refused");
        let expected = "\n- store.bundled.existingSecret is empty, and without a cluster, as in helm template and \
                        Argo CD, each rendering would generate another password: create a secret with the key \
                        password, and set store.bundled.existingSecret to its name, or use --dry-run=server\n";
        assert!(message.contains(expected), "{message}");
        let other = "store: { kind: redis, redis: { url: 'a:1' } }";
        without_secret(&helm).values(other).render();
    }
}

#[test]
fn a_cluster_keeps_the_generated_password() {
    for helm in Helm::all() {
        let server = ApiServer::start();
        let chart = without_secret(&helm).arguments(&server.arguments());
        let secret = |release: &Manifests| release.find("Secret/weir-store").clone();
        let first = chart.render_again().unwrap();
        for (name, pod) in first.pods() {
            let is_named = pod.to_string().contains(r#""secretName":"weir-store""#);
            assert_eq!(is_named, name != "Pod/weir-test", "{name}");
        }
        let first = secret(&first);
        let password = BASE64_STANDARD.decode(first["data"]["password"].text()).unwrap();
        assert!(password.len() == 32 && password.iter().all(u8::is_ascii_alphanumeric), "{first}");
        assert_ne!(secret(&chart.render_again().unwrap()), first, "each release has its own");
        server.add("/api/v1/namespaces/limits/secrets/weir-store", first.clone());
        let upgrade = chart.argument("--is-upgrade").render_again().unwrap();
        assert_eq!(secret(&upgrade), first, "{helm:?}");
    }
}

#[test]
fn the_defaults_start_with_the_bundled_store() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.chart().file("defaults").values(&format!("{RULES}{PATIENT}")).render();
    let pod = &release.find("Deployment/weir-store")["spec"]["template"]["spec"];
    let mut store = Node::with_pod(&release, pod).secret(
        "weir-valkey",
        // As an editor of Windows writes it.
        &[("password", &format!("{STORE_PASSWORD}\r\n"))],
    );
    store.mount();
    // In place of the server: prints its configuration, which is Redis's too.
    let program = store.path("valkey-server");
    let script = "#!/bin/sh\ncat\nfor word; do case $word in\n(-) ;;\n(--*) printf '\\n%s' \"${word#--}\" ;;\n\
                  (*) printf ' \"%s\"' \"$word\" ;;\nesac; done\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let words = store.words();
    let path = format!("{}:{}", store.path("").display(), std::env::var("PATH").unwrap());
    let output = Command::new(&words[0]).args(&words[1..]).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let configuration = String::from_utf8(output.stdout).unwrap();
    assert!(configuration.contains("\nmaxmemory-policy \"noeviction\""), "{configuration}");

    let lines = configuration.lines().map(str::to_owned).collect();
    let password = Some(STORE_PASSWORD.to_owned());
    let redis = Server::with(redis::Config { lines, password, ..redis::Config::default() });
    let mut stranger = redis::Client::connect(redis.port()).unwrap();
    assert!(
        matches!(stranger.send(&["PING"]), Ok(redis::Reply::Error(it)) if it.starts_with("NOAUTH"))
    );
    let service = release.find("Service/weir-store");
    let port = service["spec"]["ports"].list()[0]["port"].int();
    let node = Node::new(&release).address(&format!("weir-store:{port}"), &redis.addr());
    assert_limits(&node.start());
    assert_ne!(redis.command(&["DBSIZE"]).int(), 0, "weir counts in the store");
}

#[test]
fn only_weir_reaches_the_store() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.render("");
    assert_eq!(release.of_kind("NetworkPolicy").count(), 1, "weir itself has none by default");
    let policy = &release.find("NetworkPolicy/weir-store")["spec"];
    let labels =
        |name: &str| release.find(name)["spec"]["template"]["metadata"]["labels"].map().clone();
    let (weir, store) = (labels("Deployment/weir"), labels("Deployment/weir-store"));
    let selects = |selector: &Value, labels: &serde_json::Map<String, Value>| {
        selector["matchLabels"].map().iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    assert!(selects(&policy["podSelector"], &store) && !selects(&policy["podSelector"], &weir));
    let ingress = policy["ingress"].list();
    let from = ingress[0]["from"].list();
    // A peer with a namespaceSelector would be of another namespace.
    assert_eq!((ingress.len(), from.len(), from[0].map().len()), (1, 1, 1), "{policy}");
    assert!(selects(&from[0]["podSelector"], &weir));
    assert!(!selects(
        &from[0]["podSelector"],
        release.find("Pod/weir-test")["metadata"]["labels"].map()
    ));
    // A sidecar of Valkey can reach its control plane, whichever that is.
    assert_eq!(policy["policyTypes"], json!(["Ingress"]));
}
