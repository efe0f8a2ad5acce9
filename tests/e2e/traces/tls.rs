//! A collector over TLS, by a certificate of its own authority.

use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::*;
use crate::support::certificates::Authority;

#[test]
fn spans_are_sent_over_tls_with_a_client_certificate() {
    let authority = Authority::new();
    let identity = authority.sign(&["localhost"]);
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(identity.cert, identity.key))
        .client_ca_root(Certificate::from_pem(&authority.pem));
    let collector = Collector::grpc(Some(tls));

    let client = authority.sign(&["weir.test"]);
    let url = format!("https://localhost:{}", collector.address.port());
    let setup = traced(&collector)
        .file("ca.pem", &authority.pem)
        .file("cert.pem", &client.cert)
        .file("key.pem", &client.key);
    let [ca, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| setup.path(name));
    let weir = setup
        .env("TRACING_EXPORTER_PROTOCOL", "grpc")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        .env("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)
        .env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", cert)
        .env("OTEL_EXPORTER_OTLP_CLIENT_KEY", key)
        .start();
    ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
    check_chain(&collector.trace(&trace_id(1), 3), CALL);
    assert!(
        weir.metric(r#"weir_tls_certificate_not_after_timestamp_seconds{listener="otlp"}"#) > 0
    );
}

#[test]
fn certificates_are_read_again_before_a_connection() {
    let authority = Authority::new();
    let identity = authority.sign(&["localhost"]);
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(identity.cert, identity.key));
    let collector = Collector::grpc(Some(tls));

    let url = format!("https://localhost:{}", collector.address.port());
    let setup = traced(&collector).file("ca.pem", &Authority::new().pem);
    let ca = setup.path("ca.pem");
    let mut weir = setup
        .env("TRACING_EXPORTER_PROTOCOL", "grpc")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        .env("OTEL_EXPORTER_OTLP_CERTIFICATE", &ca)
        .start();
    ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
    weir.until_said("cannot export telemetry").expect("it runs");
    std::fs::write(ca, &authority.pem).unwrap();
    ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(2))]);
    check_chain(&collector.trace(&trace_id(2), 3), CALL);
}
