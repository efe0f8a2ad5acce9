//! The resources of examples/istio, applied to what Istio generates for its proxies, in a real Envoy.

mod envoy_filter;
mod proxy;

use std::fs;
use std::process::Command;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::proxy::{Mesh, Proxy, WEIR_CLUSTER, WEIR_HOST, example};
use crate::support::certificates::{Authority, Identity};
use crate::support::tls::TlsClient;
use crate::support::tools::kubernetes_validate;
use crate::support::weir::{Setup, Weir};
use crate::support::{envoy::Envoy, http, schemas, yaml};

const FILES: [&str; 5] =
    ["gateway.yaml", "gateway-tls.yaml", "sidecar.yaml", "sidecar-tls.yaml", "mtls.yaml"];

/// `weir serve` with the rules of the example, per year.
fn setup() -> Setup {
    let values = yaml::document(&example("weir-values.yaml"));
    let mut setup = Setup::new();
    for (name, rules) in values["rules"]["files"].as_object().expect("rule files") {
        let rules = rules.as_str().expect("text").replace("/m\n", "/year\n");
        setup = setup.file(&format!("rules/{name}"), &rules);
    }
    setup.arg("serve").arg("--rules").arg("rules")
}

/// Starts weir with TLS on gRPC.
fn over_tls(identity: &Identity) -> Weir {
    let setup = setup().file("tls.crt", &identity.cert).file("tls.key", &identity.key);
    let (cert, key) = (setup.path("tls.crt"), setup.path("tls.key"));
    setup
        .env("WEIR__GRPC__TLS__ENABLED", "true")
        .env("WEIR__GRPC__TLS__CERT", cert)
        .env("WEIR__GRPC__TLS__KEY", key)
        .start()
}

/// Compares the rules of a domain of the example with what a proxy has, by `weir check`. Returns what it prints.
fn check(envoy: &Envoy, domain: &str) -> (bool, String) {
    let values = yaml::document(&example("weir-values.yaml"));
    let rules = values["rules"]["files"][format!("{domain}.yaml")].as_str().expect("a rule file");
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in [("rules.yaml", rules), ("dump.json", &envoy.config_dump())] {
        fs::write(directory.path().join(name), text).expect("a file");
    }
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["check", "rules.yaml", "--deny-warnings", "--envoy", "dump.json"]);
    let output = weir.current_dir(directory.path()).output().expect("weir runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("text"))
}

/// Sends requests to a host of the gateway. Returns how many were answered with each status, in order.
fn statuses(envoy: &Envoy, count: usize, host: &str, path: &str) -> Vec<(u16, usize)> {
    let mut runs: Vec<(u16, usize)> = Vec::new();
    for status in envoy.statuses(count, path, &[("host", host)]) {
        match runs.last_mut() {
            Some((last, times)) if *last == status => *times += 1,
            _ => runs.push((status, 1)),
        }
    }
    runs
}

/// Sends requests to the sidecar with a certificate of the mesh. Returns their statuses.
async fn statuses_of(envoy: &Envoy, client: &TlsClient, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        let mut stream = client.connect(envoy.address).await.expect("TLS");
        let request = b"GET / HTTP/1.1\r\nhost: cart\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        // A peer that closes without an alert is an error, after the answer.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        statuses.push(answer.split(' ').nth(1).expect("a status").parse().unwrap());
    }
    statuses
}

fn ssl_stat(envoy: &Envoy, name: &str) -> u64 {
    envoy.stat(&format!("cluster.{WEIR_CLUSTER}.ssl.{name}"))
}

#[test]
fn the_gateway_limits_clients_and_routes() {
    let weir = setup().start();
    let mut gateway = Proxy::gateway(&Mesh::new(), weir.grpc);
    assert_eq!(gateway.apply("gateway.yaml"), 1);
    assert_eq!(
        gateway.http_filters(0),
        [
            "envoy.filters.http.rbac",
            "envoy.filters.http.cors",
            "envoy.filters.http.ratelimit",
            "envoy.filters.http.router"
        ]
    );
    let envoy = gateway.start("0.0.0.0_8080");

    // The route's own limit, then that of the client, which the same requests have used.
    assert_eq!(statuses(&envoy, 12, "shop.example.com", "/search"), [(200, 10), (429, 2)]);
    let answer = http::get_with(envoy.address, "/", &[("host", "blog.example.com")]);
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("87"));
    // What the mesh refuses is not counted.
    assert_eq!(statuses(&envoy, 5, "shop.example.com", "/admin"), [(403, 5)]);
    assert_eq!(statuses(&envoy, 90, "shop.example.com", "/"), [(200, 87), (429, 3)]);
    assert_eq!(statuses(&envoy, 1, "blog.example.com", "/"), [(429, 1)]);
    assert_eq!(envoy.backend.seen(), 98);
}

#[test]
fn the_rules_fit_what_the_resources_make_of_a_proxy() {
    let (weir, mesh) = (setup().start(), Mesh::new());
    let start = |mut proxy: Proxy, resources: &str, listener: &str| {
        proxy.apply_text(resources);
        proxy.start(listener)
    };
    let gateway = || Proxy::gateway(&mesh, weir.grpc);
    let envoy = start(gateway(), &example("gateway.yaml"), "0.0.0.0_8080");
    let (fits, printed) = check(&envoy, "gateway");
    assert!(fits && printed.contains("2 rules in 1 domain of 1 file, 0 warnings"), "{printed}");
    let envoy = start(Proxy::cart(&mesh, weir.grpc), &example("sidecar.yaml"), "virtualInbound");
    let (fits, printed) = check(&envoy, "cart");
    assert!(fits && printed.contains("3 rules in 1 domain of 1 file, 0 warnings"), "{printed}");
    let other =
        example("gateway.yaml").replace("descriptor_value: search", "descriptor_value: serach");
    let (fits, printed) = check(&start(gateway(), &other, "0.0.0.0_8080"), "gateway");
    let message = "no rule of the domain 'gateway' matches 'route=serach,remote_address=…'";
    assert!(!fits && printed.contains(message), "{printed}");
}

#[tokio::test]
async fn the_sidecar_limits_callers_by_their_certificate() {
    let (weir, mesh) = (setup().start(), Mesh::new());
    let mut cart = Proxy::cart(&mesh, weir.grpc);
    assert_eq!(cart.apply("sidecar.yaml"), 1);
    assert_eq!(cart.apply("gateway.yaml"), 0, "other proxies are not changed");
    let outbound = ["envoy.filters.http.router"];
    assert_eq!(cart.http_filters(0), outbound);
    let envoy = cart.start("virtualInbound");

    let client = |account| TlsClient::new(&mesh.authority, Some(&mesh.identity(account)));
    let http1 = |account| client(account).offering(&["http/1.1"]);
    let ten = [&[200; 10][..], &[429]].concat();
    assert_eq!(statuses_of(&envoy, &http1("shop/web"), 11).await, ten);
    assert_eq!(statuses_of(&envoy, &http1("blog/web"), 11).await, ten);
    let hundred = [&[200; 100][..], &[429]].concat();
    assert_eq!(statuses_of(&envoy, &http1("shop/checkout"), 101).await, hundred);
    // Callers without a certificate have no descriptor.
    assert_eq!(envoy.statuses(11, "/", &[]), [200; 11]);

    let mut own = Proxy::weir(&mesh, weir.grpc);
    assert_eq!(
        own.apply("sidecar.yaml") + own.apply("gateway.yaml"),
        0,
        "weir does not ask itself"
    );
}

#[test]
fn the_meshs_tls_protects_weir() {
    let (weir, mesh) = (setup().start(), Mesh::new());
    let mut own = Proxy::weir(&mesh, weir.grpc);
    assert_eq!(own.plaintext_ports(), [8080, 9090]);
    assert_eq!(own.apply("mtls.yaml"), 2);
    assert_eq!(own.plaintext_ports(), [9090], "metrics");
    let own = own.start("virtualInbound");

    let mut gateway = Proxy::gateway(&mesh, own.address);
    assert_eq!((gateway.apply("gateway.yaml"), gateway.apply("mtls.yaml")), (1, 1));
    let envoy = gateway.start("0.0.0.0_8080");
    assert_eq!(statuses(&envoy, 11, "shop.example.com", "/search"), [(200, 10), (429, 1)]);

    // Without TLS, or with certificates of another mesh, weir is not reached.
    let mut plain = Proxy::gateway(&mesh, own.address);
    plain.apply("gateway.yaml");
    let mut stranger = Proxy::gateway(&Mesh::new(), own.address);
    assert_eq!((stranger.apply("gateway.yaml"), stranger.apply("mtls.yaml")), (1, 1));
    for proxy in [plain, stranger] {
        let envoy = proxy.start("0.0.0.0_8080");
        assert_eq!(statuses(&envoy, 11, "shop.example.com", "/search"), [(200, 11)]);
        assert_eq!(
            envoy.stat("cluster.outbound|80||shop.shop.svc.cluster.local.ratelimit.error"),
            11
        );
    }
}

#[test]
fn proxies_verify_weirs_own_certificate() {
    let (authority, mesh) = (Authority::named("cert-manager"), Mesh::new());
    // Istio generates a cluster with HTTP/2 for this.
    let values = yaml::document(&example("weir-values-tls.yaml"));
    assert_eq!(values["service"]["appProtocol"], "grpc");
    let right = authority.sign(&["weir.ratelimit", WEIR_HOST]);
    let other_name = authority.sign(&["weir.other.svc.cluster.local"]);
    let other_authority = Authority::new().sign(&[WEIR_HOST]);
    for (identity, failure) in [
        (right, None),
        (other_name, Some("fail_verify_san")),
        (other_authority, Some("fail_verify_error")),
    ] {
        let weir = over_tls(&identity);
        let proxies = [
            (
                Proxy::gateway(&mesh, weir.grpc),
                ["gateway.yaml", "gateway-tls.yaml"],
                "0.0.0.0_8080",
            ),
            (Proxy::cart(&mesh, weir.grpc), ["sidecar.yaml", "sidecar-tls.yaml"], "virtualInbound"),
        ];
        for (mut proxy, resources, listener) in proxies {
            proxy.weir_ca = authority.pem.clone();
            assert_eq!(resources.map(|file| proxy.apply(file)), [1, 1]);
            let is_gateway = listener != "virtualInbound";
            let envoy = proxy.start(listener);
            let client = TlsClient::new(&mesh.authority, Some(&mesh.identity("shop/web")));
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let statuses = match is_gateway {
                true => envoy.statuses(11, "/search", &[("host", "shop.example.com")]),
                false => {
                    let client = client.offering(&["http/1.1"]);
                    runtime.block_on(statuses_of(&envoy, &client, 11))
                }
            };
            match failure {
                None => assert_eq!(statuses, [&[200; 10][..], &[429]].concat()),
                // No decision: failure_mode_deny is false.
                Some(failure) => {
                    assert_eq!(statuses, [200; 11]);
                    assert!(ssl_stat(&envoy, failure) > 0, "{failure}:\n{}", envoy.stats());
                }
            }
        }
    }
}

#[test]
fn the_name_of_the_cluster_is_no_valid_host() {
    let weir = setup().start();
    let mut gateway = Proxy::gateway(&Mesh::new(), weir.grpc);
    let authority = format!("authority: {WEIR_HOST}\n");
    let resource = example("gateway.yaml");
    assert!(resource.contains(&authority));
    gateway.apply_text(&resource.replace(&authority, ""));
    let envoy = gateway.start("0.0.0.0_8080");
    assert_eq!(statuses(&envoy, 11, "shop.example.com", "/search"), [(200, 11)]);
}

#[test]
fn the_filters_match_the_shop() {
    let shop = yaml::documents(&example("shop.yaml"));
    let find = |kind: &str| shop.iter().find(|resource| resource["kind"] == kind).expect(kind);
    let (filters, sidecar) = (example("gateway.yaml"), example("sidecar.yaml"));
    let (filters, sidecar) = (yaml::document(&filters), yaml::document(&sidecar));

    assert_eq!(find("Gateway")["spec"]["selector"], filters["spec"]["workloadSelector"]["labels"]);
    let route = &filters["spec"]["configPatches"][2]["match"]["routeConfiguration"]["vhost"];
    let routes = &find("VirtualService")["spec"];
    assert_eq!(routes["http"][0]["name"], route["route"]["name"]);
    assert_eq!(routes["http"][0]["match"], json!([{ "uri": { "prefix": "/search" } }]));
    assert_eq!(routes["hosts"], find("Gateway")["spec"]["servers"][0]["hosts"]);
    assert_eq!(routes["gateways"][0], find("Gateway")["metadata"]["name"]);

    let template = &find("Deployment")["spec"]["template"];
    assert_eq!(template["metadata"]["labels"], sidecar["spec"]["workloadSelector"]["labels"]);
    assert_eq!(template["metadata"]["labels"], find("Service")["spec"]["selector"]);
    let container = &template["spec"]["containers"][0];
    let port = &sidecar["spec"]["configPatches"][0]["match"]["listener"]["portNumber"];
    assert_eq!(&container["ports"][0]["containerPort"], port);
    let port = &find("Service")["spec"]["ports"][0]["port"];
    let host = &sidecar["spec"]["configPatches"][1]["match"]["routeConfiguration"]["vhost"]["name"];
    assert_eq!(host, &json!(format!("inbound|http|{port}")));
    let service = json!({ "host": "cart.shop.svc.cluster.local", "port": { "number": port } });
    for route in routes["http"].as_array().unwrap() {
        assert_eq!(route["route"], json!([{ "destination": service }]));
    }
}

#[test]
fn the_resources_fit_their_schemas() {
    for file in FILES {
        for resource in yaml::documents(&example(file)) {
            let kind = resource["kind"].as_str().expect("a kind");
            schemas::check(kind, &resource).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
    }
    // The schemas refuse unknown fields.
    let mut broken = yaml::document(&example("gateway.yaml"));
    broken["spec"]["configPatches"][0]["match"]["listener"]["port"] = 80.into();
    if kubernetes_validate().is_some() {
        schemas::check("EnvoyFilter", &broken).unwrap_err();
    }
}
