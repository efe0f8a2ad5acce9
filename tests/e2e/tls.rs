//! TLS on the listeners.

use crate::support::certificates::{Authority, Identity};
use crate::support::tls::{SERVER_NAME, TlsClient};
use crate::support::weir::{Setup, serving};
use crate::support::{api, http};

const RULES: &str = api::HIGH_LIMIT;

/// `weir serve` with TLS on gRPC and these files.
fn setup(server: &Identity) -> Setup {
    let setup = serving(RULES)
        .file("tls.crt", &server.cert)
        .file("tls.key", &server.key)
        .env("GRPC_SERVER_USE_TLS", "true");
    let (cert, key) = (setup.path("tls.crt"), setup.path("tls.key"));
    setup.env("GRPC_SERVER_TLS_CERT", cert).env("GRPC_SERVER_TLS_KEY", key)
}

/// The same, with client certificates of this authority.
fn mutual(server: &Identity, clients: &Authority) -> Setup {
    let setup = setup(server).file("ca.crt", &clients.pem);
    let ca = setup.path("ca.crt");
    setup.env("GRPC_CLIENT_TLS_CACERT", ca)
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
    assert!(error.contains("CertificateRequired"), "{error}");
    let error = ask(Some(&authority.sign(&["envoy.test"]))).await.unwrap_err();
    assert!(error.contains("UnknownCA") || error.contains("DecryptError"), "{error}");
    assert_eq!(ask(Some(&other.sign(&["envoy.test"]))).await.as_deref(), Ok("0"));
}
