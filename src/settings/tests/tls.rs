//! TLS on the listeners.

use std::path::Path;

use super::inputs;
use crate::settings::Settings;

const SERVER: [(&str, &str); 3] = [
    ("GRPC_SERVER_USE_TLS", "true"),
    ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
    ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
];

fn load(env: &[(&str, &str)]) -> Result<Settings, Vec<String>> {
    Settings::load(&inputs(env)).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn the_references_variables_concern_grpc_only() {
    let client = [
        ("GRPC_CLIENT_TLS_CACERT", "/certs/ca.crt"),
        ("GRPC_CLIENT_TLS_SAN", "spiffe://a/b,a.test"),
    ];
    // Envoy Gateway sets the last, and the reference does not read it.
    let ignored = ("GRPC_SERVER_TLS_CA_CERT", "/no/such/variable");
    let settings = load(&[&SERVER[..], &client, &[ignored]].concat()).unwrap();
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    assert!(settings.tls_options("http").is_none());
    let tls = settings.tls_options("grpc").unwrap();
    assert_eq!((tls.group, tls.listener, tls.protocol), ("grpc.tls", "grpc", "h2"));
    assert_eq!((&*tls.cert, &*tls.key), (Path::new("/certs/tls.crt"), Path::new("/certs/tls.key")));
    assert_eq!(tls.client_ca.as_deref(), Some(Path::new("/certs/ca.crt")));
    assert_eq!(tls.client_sans, ["spiffe://a/b", "a.test"]);
}

#[test]
fn http_has_tls_by_its_own_settings() {
    let settings = load(&[
        ("WEIR__HTTP__TLS__ENABLED", "true"),
        ("WEIR__HTTP__TLS__CERT", "cert"),
        ("WEIR__HTTP__TLS__KEY", "key"),
    ])
    .unwrap();
    assert!(settings.tls_options("grpc").is_none());
    let tls = settings.tls_options("http").unwrap();
    assert_eq!((tls.group, tls.listener, tls.protocol), ("http.tls", "http", "http/1.1"));
}

#[test]
fn tls_needs_a_certificate_and_names_need_an_authority() {
    let errors = load(&[("GRPC_SERVER_USE_TLS", "true"), ("GRPC_CLIENT_TLS_SAN", "a.test")]);
    let help = "name a PEM file with the";
    assert_eq!(
        errors.unwrap_err(),
        [
            format!(
                "GRPC_SERVER_USE_TLS: grpc.tls.enabled is true without grpc.tls.cert; {help} \
                 certificate in grpc.tls.cert (GRPC_SERVER_TLS_CERT)"
            ),
            format!(
                "GRPC_SERVER_USE_TLS: grpc.tls.enabled is true without grpc.tls.key; {help} key of \
                 the certificate in grpc.tls.key (GRPC_SERVER_TLS_KEY)"
            ),
            format!(
                "GRPC_CLIENT_TLS_SAN: grpc.tls.client_sans is set without grpc.tls.client_ca; \
                 {help} CA of the clients in grpc.tls.client_ca (GRPC_CLIENT_TLS_CACERT), or remove it"
            ),
        ]
    );
    let uri = ("WEIR__GRPC__TLS__CLIENT_SANS", "spiffe://cluster.local/ns/edge/sa/envoy");
    let errors = load(&[&SERVER[..], &[uri]].concat()).unwrap_err();
    assert!(errors.len() == 1 && errors[0].contains("is set without grpc.tls.client_ca"));
}

#[test]
fn what_tls_would_use_has_no_effect_without_it() {
    let mut env = SERVER;
    env[0].1 = "false";
    let settings = load(&env).unwrap();
    assert!(settings.tls_options("grpc").is_none());
    let names = "GRPC_SERVER_TLS_CERT, GRPC_SERVER_TLS_KEY";
    assert_eq!(settings.warnings, [format!("{names} have no effect: grpc.tls.enabled is false")]);
    assert!(load(&[("GRPC_SERVER_USE_TLS", "false")]).unwrap().warnings.is_empty());
}
