//! The real binary starts with what the chart renders, becomes ready and answers.

use std::net::SocketAddr;

use serde_json::json;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use weir::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::helm::{Helm, value_files};
use crate::kubelet::{Node, Running};
use crate::manifests::{Manifests, Read};
use crate::support::certificates::{self, Authority};
use crate::support::management::{Management, any};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::sentinel::{MASTER, Sentinels};
use crate::support::redis::{self, Server};
use crate::support::{PATIENCE, http, wait_for};

/// One hit per year for each user, so that no test waits for a window.
pub const RULES: &str = "
rules:
  files:
    shop.yaml: |
      domain: shop
      descriptors:
        - key: user
          rate_limit: { unit: year, requests_per_unit: 1 }
";

pub fn wait_until_ready(running: &Running) {
    let ready = || {
        let answer = http::ask(running.http, "GET", "/readyz", &[], b"").ok()?;
        (answer.status == 200).then_some(())
    };
    wait_for("/readyz answers 200", ready);
}

/// Sends a request of a user in the domain `shop` to `/json`. Returns whether it is allowed.
pub fn allows(http: SocketAddr, user: &str) -> bool {
    let descriptor = json!({ "entries": [{ "key": "user", "value": user }] });
    let body = json!({ "domain": "shop", "descriptors": [descriptor] }).to_string();
    let answer = http::post(http, "/json", body);
    match answer.status {
        200 => true,
        429 => false,
        _ => panic!("{answer:?}"),
    }
}

/// Asserts that it is ready, and that it limits a user to one request.
pub fn assert_limits(running: &Running) {
    wait_until_ready(running);
    assert!(allows(running.http, "ann"), "{}", running.said());
    assert!(!allows(running.http, "ann"), "{}", running.said());
    assert!(allows(running.http, "bob"), "{}", running.said());
}

/// Renders a value file with the rules of these tests and further values.
fn render(helm: &Helm, file: &str, values: &str) -> Manifests {
    helm.chart().file(file).values(&format!("{RULES}{values}")).render()
}

/// A pause of a busy machine must not count as an outage of Redis.
pub const PATIENT: &str = "settings: { store: { redis: { slow_after: 10s }, budget: 10s } }\n";

fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn weir_accepts_the_settings_of_every_value_file() {
    let Some(helm) = Helm::newest() else { return };
    for file in value_files() {
        let release = helm.render_file(&file);
        let mut node = every_secret(&release);
        let settings = node.settings();
        assert_eq!(settings["grpc.address"], ":8081", "{file}");
        assert_eq!(settings["http.address"], ":8080", "{file}");
        assert!(settings["debug.address"].starts_with("127.0.0.1:"), "{file}");
    }
}

/// Returns a node that has every secret and ConfigMap that the pod names, with text in each key.
pub fn every_secret(release: &Manifests) -> Node {
    let mut node = Node::new(release);
    for volume in release.pod()["volumes"].list() {
        if let Some(secret) = volume.get("secret") {
            let keys = ["ca.crt", "tls.crt", "tls.key", "password", "username", "auth-token"];
            let tokens = ["read-token", "write-token"];
            let keys =
                keys.into_iter().chain(["auth-string"]).chain(tokens).map(|key| (key, "secret"));
            node = node.secret(secret["secretName"].text(), &keys.collect::<Vec<_>>());
        }
        let Some(map) = volume.get("configMap").map(|map| map["name"].text()) else { continue };
        if !release.resources.contains_key(&format!("ConfigMap/{map}")) {
            let files = [("rules.yaml", "domain: shop"), ("any.overlay.yaml", "patches: []")];
            node = node.config_map(map, &files);
        }
    }
    node
}

#[test]
fn the_example_rules_are_loaded() {
    let Some(helm) = Helm::newest() else { return };
    let release = helm.chart().file("minimal").render();
    let running = Node::new(&release).start();
    wait_until_ready(&running);
    let rules = http::get(running.debug, "/rlconfig").body;
    assert!(rules.contains("example.path"), "{rules}");
    let tested = running.helm_test(&release);
    assert!(tested.status.success(), "{tested:?}");
}

#[test]
fn memory_starts() {
    let Some(helm) = Helm::newest() else { return };
    let running = Node::new(&render(&helm, "memory", "")).start();
    assert_limits(&running);
}

#[test]
fn an_existing_config_map_starts() {
    let Some(helm) = Helm::newest() else { return };
    let values = "replicaCount: 1\nstore: { kind: memory }";
    let release = helm.chart().file("existing-config-map").values(values).render();
    let rules = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { unit: year, requests_per_unit: 1 }\n";
    let running = Node::new(&release).config_map("team-rules", &[("any.yaml", rules)]).start();
    assert_limits(&running);
}

/// A Redis with TLS that requires a client certificate and a password.
fn redis_with_tls(lines: &[&str]) -> Server {
    let lines = lines.iter().map(|&line| line.to_owned()).collect();
    Server::with(redis::Config { tls: true, lines, ..redis::Config::default() })
}

#[test]
fn redis_with_tls_starts() {
    let Some(helm) = Helm::newest() else { return };
    let redis = redis_with_tls(&["user weir on >pass-word ~* +@all", "user default off"]);
    let release = render(&helm, "redis-tls", PATIENT);
    let files = redis.certificates();
    let node = Node::new(&release)
        .address("redis.data.svc.cluster.local:6380", &redis.addr())
        .secret("redis-login", &[("username", "weir"), ("password", "pass-word")])
        .secret("redis-ca", &[("ca.crt", &read(&files.ca))])
        .secret(
            "redis-client",
            &[("tls.crt", &read(&files.client_cert)), ("tls.key", &read(&files.client_key))],
        );
    // With the failure policy `local` it would be ready, and limit, without Redis too.
    let node = node.address("on_failure: local", "on_failure: error");
    assert_limits(&node.start());
}

#[test]
fn memorystore_starts() {
    let Some(helm) = Helm::newest() else { return };
    let redis = redis_with_tls(&["requirepass auth", "tls-auth-clients no"]);
    let ca = read(&redis.certificates().ca);
    let node = Node::new(&render(&helm, "memorystore", PATIENT))
        .address("10.0.0.3:6378", &redis.addr())
        .secret("memorystore", &[("auth-string", "auth")])
        .secret("memorystore-ca", &[("ca.crt", &ca)]);
    assert_limits(&node.start());
}

#[test]
fn a_cluster_starts() {
    let Some(helm) = Helm::newest() else { return };
    let cluster = Cluster::start(3, 0);
    // Without TLS: no public CA signs a certificate for this machine.
    let values = format!("{PATIENT}store: {{ redis: {{ tls: {{ enabled: false }} }} }}");
    let endpoint = "clustercfg.counters.abc123.euw1.cache.amazonaws.com:6379";
    for master in &cluster.masters {
        master.command(&["CONFIG", "SET", "requirepass", "token"]);
    }
    let node = Node::new(&render(&helm, "elasticache", &values))
        .address(endpoint, &cluster.addresses()[0])
        .address("on_failure: allow", "on_failure: error")
        .secret("elasticache", &[("auth-token", "token")]);
    assert_limits(&node.start());
}

#[test]
fn sentinels_start() {
    let Some(helm) = Helm::newest() else { return };
    let sentinels = Sentinels::start();
    for sentinel in &sentinels.sentinels {
        sentinel.command(&["SENTINEL", "SET", MASTER, "auth-pass", "pass"]);
        sentinel.command(&["ACL", "SETUSER", "default", "resetpass", ">sentinel-pass"]);
    }
    sentinels.replica.command(&["CONFIG", "SET", "masterauth", "pass"]);
    sentinels.master.command(&["CONFIG", "SET", "requirepass", "pass"]);
    let addresses = "sentinel-0.sentinel:26379,sentinel-1.sentinel:26379,sentinel-2.sentinel:26379";
    let node = Node::new(&render(&helm, "sentinel", PATIENT))
        .address(addresses, &sentinels.addresses().join(","))
        .secret("redis-login", &[("password", "pass")])
        .secret("sentinel-login", &[("password", "sentinel-pass")]);
    assert_limits(&node.start());
}

/// Returns the rules of [`RULES`] as a management server sends them.
pub fn shop_resource() -> prost_types::Any {
    use weir_rules::proto::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit};

    let limit = RateLimitPolicy {
        unit: RateLimitUnit::Year.into(),
        requests_per_unit: 1,
        ..RateLimitPolicy::default()
    };
    let rule = RateLimitDescriptor {
        key: "user".into(),
        rate_limit: Some(limit),
        ..RateLimitDescriptor::default()
    };
    any(&RateLimitConfig {
        name: "shop".into(),
        domain: "shop".into(),
        descriptors: vec![rule],
        ..RateLimitConfig::default()
    })
}

#[test]
fn xds_starts() {
    let Some(helm) = Helm::newest() else { return };
    let authority = Authority::new();
    let server = authority.sign(&["management.internal"]);
    let tls = tonic::transport::ServerTlsConfig::new()
        .identity(Identity::from_pem(&server.cert, &server.key))
        .client_ca_root(Certificate::from_pem(&authority.pem));
    let server = tonic::transport::Server::builder().tls_config(tls).unwrap();
    let management = Management::start_on("127.0.0.1:0".parse().unwrap(), server);
    let release =
        helm.chart().file("xds").values("replicaCount: 1\nstore: { kind: memory }").render();
    let client = authority.sign(&["weir"]);
    let node = Node::new(&release)
        .address("management.infra:18000", &management.address.to_string())
        .secret("management-ca", &[("ca.crt", &authority.pem)])
        .secret("management-client", &[("tls.crt", &client.cert), ("tls.key", &client.key)]);
    let running = node.start();
    let asked = management.sotw.next();
    assert_eq!(asked.node.unwrap_or_default().id, "edge");
    management.set("1", vec![shop_resource()]);
    assert_limits(&running);
}

/// Sends a request of a user over gRPC with TLS.
async fn decide(to: SocketAddr, tls: ClientTlsConfig, user: &str) -> Code {
    let endpoint = Endpoint::from_shared(format!("https://{to}")).unwrap().timeout(PATIENCE);
    let channel = endpoint.tls_config(tls).unwrap().connect().await.expect("a connection");
    let entry = Entry { key: "user".into(), value: user.into() };
    let request = RateLimitRequest {
        domain: "shop".into(),
        descriptors: vec![RateLimitDescriptor { entries: vec![entry], ..Default::default() }],
        hits_addend: 0,
    };
    let mut client = RateLimitServiceClient::new(channel);
    client.should_rate_limit(request).await.expect("an answer").into_inner().overall_code()
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_client_certificates_starts_and_its_probes_succeed() {
    let Some(helm) = Helm::newest() else { return };
    let (authority, mesh) = (Authority::new(), Authority::named("mesh"));
    let server = authority.sign(&["weir.limits.svc"]);
    let release = render(&helm, "tls", "replicaCount: 1\nstore: { kind: memory }");
    let node = Node::new(&release)
        .secret("weir-server", &[("tls.crt", &server.cert), ("tls.key", &server.key)])
        .secret("mesh-ca", &[("ca.crt", &mesh.pem)]);
    let running = node.start();
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        wait_for(&format!("the {probe} succeeds"), || {
            running.exec_probe(probe).status.success().then_some(())
        });
    }
    let tls = |client: &certificates::Identity| {
        ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&authority.pem))
            .domain_name("weir.limits.svc")
            .identity(Identity::from_pem(&client.cert, &client.key))
    };
    let envoy = mesh.sign(&["spiffe://cluster.local/ns/gateway/sa/envoy"]);
    assert_eq!(decide(running.grpc, tls(&envoy), "ann").await, Code::Ok);
    assert_eq!(decide(running.grpc, tls(&envoy), "ann").await, Code::OverLimit);
    assert!(http::ask(running.http, "GET", "/readyz", &[], b"").is_err(), "HTTP is plain");
}

#[test]
fn helm_test_verifies_the_certificate() {
    let Some(helm) = Helm::newest() else { return };
    let release =
        render(&helm, "tls-without-client-ca", "replicaCount: 1\nstore: { kind: memory }");
    let (authority, other) = (Authority::new(), Authority::named("other"));
    let server = authority.sign(&["127.0.0.1"]);
    let start = |ca: &str| {
        let secret = [("ca.crt", ca), ("tls.crt", &server.cert), ("tls.key", &server.key)];
        Node::new(&release).secret("weir-server", &secret).start()
    };
    let running = start(&authority.pem);
    wait_for("`helm test` succeeds", || running.helm_test(&release).status.success().then_some(()));
    let running = start(&other.pem);
    wait_for("`helm test` reaches weir", || {
        let output = running.helm_test(&release);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).contains("UnknownIssuer").then_some(())
    });
}
