//! TLS on the listeners.

use std::io::Write;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::connections::{framed_request, head, send};
use crate::support::certificates::{Authority, Identity};
use crate::support::tls::{SERVER_NAME, TlsClient};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{PATIENCE, api, envoy, http, wait_until};

const RULES: &str = api::HIGH_LIMIT;

/// Rules for requests through Envoy.
const EDGE_RULES: &str = "domain: edge\ndescriptors:\n  - key: user\n    \
                          rate_limit: { unit: year, requests_per_unit: 1 }\n";

/// `weir serve` with TLS on gRPC and these files.
fn setup(server: &Identity) -> Setup {
    let setup = serving(RULES)
        .file("tls.crt", &server.cert)
        .file("tls.key", &server.key)
        .env("GRPC_SERVER_USE_TLS", "true");
    let (cert, key) = (setup.path("tls.crt"), setup.path("tls.key"));
    setup.env("GRPC_SERVER_TLS_CERT", cert).env("GRPC_SERVER_TLS_KEY", key)
}

/// Returns a setup that requires client certificates of this authority.
fn mutual(server: &Identity, clients: &Authority) -> Setup {
    let setup = setup(server).file("ca.crt", &clients.pem);
    let ca = setup.path("ca.crt");
    setup.env("GRPC_CLIENT_TLS_CACERT", ca)
}

/// Whether the server refused the client's certificate. A client of TLS 1.3 is done before the server
/// has checked it, and may notice that the connection is closed before it reads one of `alerts`.
fn is_refusal(error: &str, alerts: &[&str]) -> bool {
    let closed = ["broken pipe", "Broken pipe", "reset"];
    alerts.iter().chain(&closed).any(|text| error.contains(text))
}

#[tokio::test]
async fn grpc_is_served_over_tls_and_http_stays_plain() {
    let authority = Authority::new();
    let weir = setup(&authority.sign(&[SERVER_NAME])).start();
    let client = TlsClient::new(&authority, None);
    assert_eq!(client.ask(weir.grpc, "ann").await.as_deref(), Ok("0"));
    let stream = client.connect(weir.grpc).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    for answer in [http::get(weir.http, "/healthcheck"), http::get(weir.debug, "/status")] {
        assert_eq!(answer.status, 200);
    }
    // Nothing but TLS, and nothing but HTTP/2 in it.
    assert!(http::ask(weir.grpc, "GET", "/", &[], b"").is_err());
    assert!(client.offering(&["http/1.1"]).connect(weir.grpc).await.is_err());
}

#[tokio::test]
async fn clients_need_a_certificate_of_the_given_authority() {
    let (authority, other) = (Authority::new(), Authority::named("other authority"));
    let weir = mutual(&authority.sign(&[SERVER_NAME]), &other).start();
    let ask = async |identity: Option<&Identity>| {
        TlsClient::new(&authority, identity).ask(weir.grpc, "ann").await
    };
    let error = ask(None).await.unwrap_err();
    assert!(is_refusal(&error, &["CertificateRequired"]), "{error}");
    let error = ask(Some(&authority.sign(&["envoy.test"]))).await.unwrap_err();
    assert!(is_refusal(&error, &["UnknownCA", "DecryptError"]), "{error}");
    weir.has_said("TLS handshake failed");
    assert_eq!(ask(Some(&other.sign(&["envoy.test"]))).await.as_deref(), Ok("0"));
}

#[tokio::test]
async fn clients_need_one_of_the_allowed_names() {
    let authority = Authority::new();
    let weir = mutual(&authority.sign(&[SERVER_NAME]), &authority)
        .env("GRPC_CLIENT_TLS_SAN", "a.envoy.test,spiffe://cluster.local/ns/edge/sa/envoy")
        .start();
    let ask = async |name| {
        TlsClient::new(&authority, Some(&authority.sign(&[name]))).ask(weir.grpc, "ann").await
    };
    for good in ["a.envoy.test", "*.envoy.test", "spiffe://cluster.local/ns/edge/sa/envoy"] {
        assert_eq!(ask(good).await.as_deref(), Ok("0"), "{good}");
    }
    for bad in ["b.envoy.test", "127.0.0.1", "spiffe://cluster.local/ns/edge/sa/other"] {
        let error = ask(bad).await.unwrap_err();
        assert!(is_refusal(&error, &["CertificateUnknown"]), "{bad}: {error}");
    }
    let said = weir.said();
    assert!(said.contains("TLS handshake failed listener=\"grpc\" peer=127.0.0.1:"), "{said}");
    assert!(said.contains("grpc.tls.client_sans allows"), "{said}");
}

/// Replaces a file as Kubernetes does: at once, by a link.
fn swap(weir: &Weir, files: &[(&str, &str)], version: &str) {
    let directory = weir.path(version);
    std::fs::create_dir(&directory).unwrap();
    for (name, text) in files {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let (link, new) = (weir.path("..data"), weir.path("..data_tmp"));
    std::os::unix::fs::symlink(version, &new).unwrap();
    std::fs::rename(new, link).unwrap();
}

#[tokio::test]
async fn certificates_are_reloaded_when_they_change() {
    let old = Authority::named("old authority");
    let new = Authority::named("new authority");
    let (server, renewed) = (old.sign(&[SERVER_NAME]), new.sign(&[SERVER_NAME]));
    let setup = serving(RULES)
        .file("v1/tls.crt", &server.cert)
        .file("v1/tls.key", &server.key)
        .file("v1/ca.crt", &old.pem);
    std::os::unix::fs::symlink("v1", setup.path("..data")).unwrap();
    let (cert, key) = (setup.path("..data/tls.crt"), setup.path("..data/tls.key"));
    let ca = setup.path("..data/ca.crt");
    let mut weir = setup
        .env("GRPC_SERVER_USE_TLS", "true")
        .env("GRPC_SERVER_TLS_CERT", cert)
        .env("GRPC_SERVER_TLS_KEY", key)
        .env("GRPC_CLIENT_TLS_CACERT", ca)
        .start();
    let (old_client, new_client) = (
        TlsClient::new(&old, Some(&old.sign(&["a"]))),
        TlsClient::new(&new, Some(&new.sign(&["a"]))),
    );
    assert_eq!(old_client.ask(weir.grpc, "ann").await.as_deref(), Ok("0"));
    let mut open = old_client.open(weir.grpc).await;

    // The certificate and another one's key: the active set stays.
    let bad = [("tls.crt", &*renewed.cert), ("tls.key", &*server.key), ("ca.crt", &*new.pem)];
    swap(&weir, &bad, "v2");
    let rest = weir.until_said("changed TLS certificates are invalid").unwrap();
    assert!(rest.contains("grpc.tls.cert names ") && rest.contains("its own key"), "{rest}");
    let [(kind, problem)] = &weir.problems()[..] else { panic!("{:?}", weir.problems()) };
    let text = problem["text"].as_str().unwrap();
    assert!(kind == "certificate" && text.contains("of grpc are invalid: "), "{problem}");
    assert!(problem["file"].as_str().unwrap().ends_with("tls.crt"), "{problem}");
    assert_eq!(problem["runbook"], "WeirCertificateNotReloaded");
    assert_eq!(old_client.ask(weir.grpc, "ann").await.as_deref(), Ok("0"));

    let good = [("tls.crt", &*renewed.cert), ("tls.key", &*renewed.key), ("ca.crt", &*new.pem)];
    swap(&weir, &good, "v3");
    weir.until_said("TLS certificates reloaded listener=\"grpc\" expires=").unwrap();
    assert_eq!(weir.problems(), []);
    assert_eq!(new_client.ask(weir.grpc, "ann").await.as_deref(), Ok("0"));
    // The client CA changed too.
    let mixed = TlsClient::new(&new, Some(&old.sign(&["a"])));
    assert!(mixed.ask(weir.grpc, "ann").await.is_err());
    assert!(old_client.connect(weir.grpc).await.is_err());
    // Connections stay.
    let answer = send(&mut open, head(), &[framed_request("ann")]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("0"));
    let said = weir.said();
    assert_eq!(said.matches("changed TLS certificates are invalid").count(), 1, "{said}");
}

#[test]
fn weir_does_not_start_without_the_tls_that_is_asked_for() {
    let authority = Authority::new();
    let server = authority.sign(&[SERVER_NAME]);
    let setup = || setup(&server);
    for (setup, said) in [
        (
            setup().env("GRPC_SERVER_TLS_CERT", ""),
            "GRPC_SERVER_USE_TLS: grpc.tls.enabled is true without grpc.tls.cert; ",
        ),
        (setup().env("GRPC_SERVER_TLS_CERT", "/none"), "grpc.tls.cert names /none: No such file"),
        (setup().file("tls.key", "nonsense"), "name a file with a private key in PEM"),
        (
            setup().file("tls.key", &authority.sign(&[SERVER_NAME]).key),
            "name a certificate, followed by its chain, and its own key",
        ),
        (
            setup().env("GRPC_CLIENT_TLS_SAN", "envoy.test"),
            "GRPC_CLIENT_TLS_SAN: grpc.tls.client_sans is set without grpc.tls.client_ca; ",
        ),
        (
            mutual(&server, &authority).env("GRPC_CLIENT_TLS_SAN", "a b"),
            "grpc.tls.client_sans has \"a b\"; write a DNS name, an IP address, or a URI",
        ),
        (
            serving(RULES).env("WEIR__HTTP__TLS__ENABLED", "true"),
            "http.tls.enabled is true without http.tls.cert; ",
        ),
    ] {
        let (status, output) = setup.env("LOG_LEVEL", "error").run();
        // A file that is missing may be there after a restart.
        let code = if said.contains("No such file") { 1 } else { 64 };
        assert_eq!(status.code(), Some(code), "{output}");
        assert!(output.contains("weir cannot start") && output.contains(said), "{said}: {output}");
    }
}

#[test]
fn an_expired_certificate_is_reported() {
    let authority = Authority::new();
    let expired = authority.sign_between(&[SERVER_NAME], (2020, 1, 1), (2020, 2, 1));
    let mut weir = setup(&expired).start();
    let rest = weir.until_said("TLS certificate has expired").unwrap();
    let wanted =
        format!("listener=\"grpc\" subject=\"CN={SERVER_NAME}\" expires=2020-02-01T00:00:00Z");
    assert!(rest.contains(&wanted), "{rest}");
    let status: Value = serde_json::from_str(&http::get(weir.debug, "/status").body).unwrap();
    let certificate = json!({
        "listener": "grpc",
        "subject": format!("CN={SERVER_NAME}"),
        "not_before": "2020-01-01T00:00:00Z",
        "not_after": "2020-02-01T00:00:00Z",
    });
    assert_eq!(status["tls"], json!([certificate]));
    let problem = json!({
        "kind": "certificate",
        "severity": "critical",
        "text": format!(
            "TLS certificate CN={SERVER_NAME} of grpc has expired: 2020-02-01T00:00:00Z"
        ),
        "file": weir.path("tls.crt"), "line": null, "column": null, "count": null,
        "since": "2020-02-01T00:00:00Z", "runbook": "WeirCertificateExpires",
    });
    assert_eq!(status["problems"], json!([problem]));
    for (name, value) in [("not_before", 1_577_836_800), ("not_after", 1_580_515_200)] {
        let metric = format!("weir_tls_certificate_{name}_timestamp_seconds{{listener=\"grpc\"}}");
        assert_eq!(weir.metric(&metric), value);
    }
    assert_eq!(weir.metric(r#"weir_tls_last_load_successful{listener="grpc"}"#), 1);
}

#[tokio::test]
async fn http_has_tls_by_its_own_settings() {
    let authority = Authority::new();
    let server = authority.sign(&[SERVER_NAME]);
    let setup = serving(RULES).file("tls.crt", &server.cert).file("tls.key", &server.key);
    let (cert, key) = (setup.path("tls.crt"), setup.path("tls.key"));
    let weir = setup
        .env("WEIR__HTTP__TLS__ENABLED", "true")
        .env("WEIR__HTTP__TLS__CERT", cert)
        .env("WEIR__HTTP__TLS__KEY", key)
        .start_unhealthy();
    let client = TlsClient::new(&authority, None).offering(&["http/1.1"]);
    let mut health = String::new();
    wait_until("weir is healthy", async || {
        let mut stream = client.connect(weir.http).await.unwrap();
        let request = "GET /healthcheck HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        health.clear();
        stream.read_to_string(&mut health).await.unwrap();
        health.starts_with("HTTP/1.1 200 OK")
    })
    .await;
    assert!(http::ask(weir.http, "GET", "/healthcheck", &[], b"").is_err());
    // The others are plain.
    assert_eq!(http::get(weir.debug, "/status").status, 200);
    assert_eq!(api::code(weir.grpc, api::user_request()).await, Code::Ok);
}

#[test]
fn a_real_envoy_connects_with_its_certificate() {
    let authority = Authority::new();
    let weir = mutual(&authority.sign(&[SERVER_NAME]), &authority)
        .env("WEIR__GRPC__TLS__CLIENT_SANS", "spiffe://cluster.local/ns/edge/*")
        .file("rules.yaml", EDGE_RULES)
        .start();
    let client = authority.sign(&["spiffe://cluster.local/ns/edge/sa/envoy"]);
    let stranger = authority.sign(&["spiffe://cluster.local/ns/other/sa/envoy"]);
    for (identity, statuses) in [(&stranger, [500, 500]), (&client, [200, 429])] {
        let envoy = envoy::over_tls(&weir, "failure_mode_deny: true", &authority, identity);
        assert_eq!(envoy.statuses(2, "/", &[("x-user", "bob")]), statuses);
    }
    assert_eq!(http::get(weir.http, "/healthcheck").status, 200);
}

#[tokio::test]
async fn clients_that_never_start_a_handshake_delay_no_one() {
    let authority = Authority::new();
    let server = authority.sign(&[SERVER_NAME]);
    let weir = setup(&server).env("WEIR__GRPC__MAX_CONNECTIONS", "256").start();
    let client = TlsClient::new(&authority, None);
    let mut open = client.open(weir.grpc).await;
    send(&mut open, head(), &[framed_request("ann")]).await.unwrap();
    // Nothing, half a hello, and a hello of nonsense.
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let silent: Vec<_> = (0..600)
        .map(|i| {
            let mut silent = std::net::TcpStream::connect(weir.grpc).unwrap();
            // It may have been closed already.
            let _ = silent.write_all(&hello[..hello.len() * (i % 3) / 2]);
            silent
        })
        .collect();
    let answer = send(&mut open, head(), &[framed_request("ann")]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("0"));
    // While the burst fills the queue of handshakes, newcomers are refused.
    let served = async || client.ask(weir.grpc, "ann").await.as_deref() == Ok("0");
    wait_until("a newcomer is served", served).await;
    assert_eq!(http::get(weir.http, "/healthcheck").status, 200);
    assert!(weir.metric(r#"weir_connections_evicted_total{listener="grpc"}"#) > 100);
    assert!(weir.metric(r#"weir_tls_handshakes_total{listener="grpc"}"#) >= 2);
    drop(silent);
}

#[tokio::test]
async fn a_handshake_has_a_deadline() {
    let authority = Authority::new();
    let weir =
        setup(&authority.sign(&[SERVER_NAME])).env("WEIR__CLIENTS__TIMEOUT", "200ms").start();
    for sent in [&b""[..], b"\x16\x03\x01\x02\x00"] {
        let mut slow = tokio::net::TcpStream::connect(weir.grpc).await.unwrap();
        slow.write_all(sent).await.unwrap();
        let closed = timeout(PATIENCE, slow.read(&mut [0])).await.expect("closed in time");
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    }
}

#[tokio::test]
async fn large_requests_and_responses_pass() {
    let authority = Authority::new();
    let weir = setup(&authority.sign(&[SERVER_NAME])).start();
    let mut client = TlsClient::new(&authority, None).open(weir.grpc).await;
    // A request of several records, in one frame after the other.
    let user = "u".repeat(200_000);
    let answer = send(&mut client, head(), &[framed_request(&user)]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("0"));
    let answer = send(&mut client, head(), &[framed_request("ann")]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("0"));
}
