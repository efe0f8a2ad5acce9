//! A collector over TLS, by a certificate of its own authority.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::*;

#[test]
fn spans_are_sent_over_tls_with_a_client_certificate() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let sign = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let (cert, key) = sign("localhost");
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(cert, key))
        .client_ca_root(Certificate::from_pem(&ca));
    let collector = Collector::grpc(Some(tls));

    let (cert, key) = sign("weir.test");
    let url = format!("https://localhost:{}", collector.address.port());
    let setup =
        traced(&collector).file("ca.pem", &ca).file("cert.pem", &cert).file("key.pem", &key);
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
}
