//! TLS connections to the management server.

use std::net::SocketAddr;

use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use super::{any, asking, rules};
use crate::reload::until;
use crate::support::certificates::{self, Authority};
use crate::support::http;
use crate::support::management::Management;
use crate::support::weir::Setup;

/// A server named `xds.test` that requires client certificates of the same authority.
fn server(authority: &Authority) -> Management {
    let certificates::Identity { cert, key } = authority.sign(&["xds.test"]);
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(cert, key))
        .client_ca_root(Certificate::from_pem(&authority.pem));
    let server = Server::builder().tls_config(tls).expect("good certificates");
    Management::start_on("127.0.0.1:0".parse().unwrap(), server)
}

fn asking_over_tls(server: SocketAddr, ca: &Authority, client: certificates::Identity) -> Setup {
    let setup = asking(server)
        .file("ca.pem", &ca.pem)
        .file("cert.pem", &client.cert)
        .file("key.pem", &client.key)
        .env("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true");
    let path = setup.path("ca.pem");
    setup.env("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", path)
}

fn with_client(setup: Setup) -> Setup {
    let (cert, key) = (setup.path("cert.pem"), setup.path("key.pem"));
    setup.env("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", cert).env("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", key)
}

#[test]
fn both_sides_show_certificates() {
    let authority = Authority::new();
    let server = server(&authority);
    let setup = asking_over_tls(server.address, &authority, authority.sign(&["weir.test"]));
    let weir =
        with_client(setup).env("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.test").start_unhealthy();
    server.sotw.next();
    server.set("1", vec![any(&rules("shop", 1))]);
    until(&weir, &[("shop", 1)]);
    let status: serde_json::Value =
        serde_json::from_str(&http::get(weir.debug, "/status").body).unwrap();
    assert_eq!(status["tls"][0]["listener"], "xds", "{status}");
    assert_eq!(status["tls"][0]["subject"], "CN=weir.test");
}

#[test]
fn roots_of_the_system_verify_the_servers_certificate() {
    let authority = Authority::new();
    let server = server(&authority);
    let setup = asking_over_tls(server.address, &authority, authority.sign(&["weir.test"]));
    let path = setup.path("ca.pem");
    let weir = with_client(setup)
        .env("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "")
        .env("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.test")
        .env("SSL_CERT_FILE", path)
        .start_unhealthy();
    server.sotw.next();
    server.set("1", vec![any(&rules("shop", 1))]);
    assert!(weir.is_healthy());
}

#[test]
fn a_side_without_a_valid_certificate_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = server(&authority);
    let of =
        |ca, client: &Authority| asking_over_tls(server.address, ca, client.sign(&["weir.test"]));
    let named = |setup: Setup| setup.env("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.test");
    for (setup, why) in [
        (named(of(&authority, &authority)), "rules.xds.tls.cert"),
        (named(with_client(of(&authority, &other))), "rules.xds.tls.cert"),
        (named(with_client(of(&other, &authority))), "invalid peer certificate"),
        (with_client(of(&authority, &authority)), "not valid for name"),
    ] {
        let mut weir = setup.start_unhealthy();
        let said = weir.until_said("no stream from the management server").unwrap();
        assert!(said.contains(why), "{why:?}: {said}");
        assert!(!weir.is_healthy());
    }
    assert_eq!(server.sotw.streams(), 0);
}

#[test]
fn a_renewed_certificate_is_used_with_the_next_connection() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = server(&authority);
    let setup = asking_over_tls(server.address, &authority, other.sign(&["weir.test"]));
    let mut weir =
        with_client(setup).env("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.test").start_unhealthy();
    weir.until_said("no stream from the management server").unwrap();
    let certificates::Identity { cert, key } = authority.sign(&["weir.test"]);
    std::fs::write(weir.path("cert.pem"), cert).unwrap();
    std::fs::write(weir.path("key.pem"), key).unwrap();
    server.sotw.next();
}

#[test]
fn unusable_new_certificates_leave_the_old_ones_in_use() {
    let authority = Authority::new();
    let server = server(&authority);
    let setup = asking_over_tls(server.address, &authority, authority.sign(&["weir.test"]));
    let mut weir =
        with_client(setup).env("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.test").start_unhealthy();
    server.sotw.next();
    server.set("1", vec![any(&rules("shop", 1))]);
    let key = authority.sign(&["weir.test"]).key;
    std::fs::write(weir.path("key.pem"), key).unwrap();
    std::fs::write(weir.path("ca.pem"), "nonsense").unwrap();
    server.sotw.end();
    assert_eq!(server.sotw.next().version_info, "1");
    let said = weir.until_said("the previous ones stay in use").unwrap();
    assert!(said.contains("rules.xds.tls.ca names "), "{said}");
    assert_eq!(server.sotw.streams(), 2);
}

#[test]
fn unusable_tls_settings_are_reported_at_the_start() {
    let authority = Authority::new();
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let setup =
        || with_client(asking_over_tls(nowhere, &authority, authority.sign(&["weir.test"])));
    for (setup, said) in [
        (setup().file("ca.pem", "nonsense"), "rules.xds.tls.ca names "),
        (setup().file("key.pem", "nonsense"), "name a private key in PEM"),
        (setup().env("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/none"), "/none: No such file"),
        (setup().env("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", ""), "name the key too"),
        (setup().env("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "a b"), "rules.xds.tls.server_name is"),
        (
            setup()
                .env("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "")
                .env("SSL_CERT_FILE", "/none")
                .env("SSL_CERT_DIR", "/none"),
            "the system's certificates cannot be used",
        ),
        (setup().env("CONFIG_GRPC_XDS_SERVER_URL", "xds"), "there is no port"),
        (
            setup().env("WEIR__RULES__XDS__HEADERS", "secret"),
            "rules.xds.headers: there is no colon",
        ),
    ] {
        let (status, output) = setup.run();
        // What is missing may be there after a restart.
        let is_missing = said.contains("/none") || said.starts_with("the system's");
        let code = if is_missing { 1 } else { 64 };
        assert_eq!(status.code(), Some(code), "{output}");
        assert!(
            output.contains("weir cannot start") && output.contains(said),
            "{said:?}: {output}"
        );
    }
}
