//! Files, names and reloading, without sockets.

#[path = "../../../tests/support/certificates.rs"]
mod certificates;

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{Error, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::json;
use tempfile::TempDir;

use self::certificates::{Authority, Identity};
use super::client_verifier::ClientVerifier;
use super::{Certificates, Identities, TlsOptions};
use weir_client::tls::{ClientCertificates, ClientFiles, PemFile};
use weir_common::metrics::{MetricFamily, MetricSink, MetricSource, SampleValue};

fn options(directory: &Path) -> TlsOptions {
    TlsOptions {
        group: "grpc.tls",
        listener: "grpc",
        protocol: "h2",
        cert: directory.join("tls.pem"),
        key: directory.join("tls-key.pem"),
        client_ca: None,
        client_sans: Vec::new(),
    }
}

fn der(identity: &Identity) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(identity.cert.as_bytes()).unwrap()
}

/// The verifier of clients of this authority.
fn verifier(authority: &Authority, options: &TlsOptions) -> Result<ClientVerifier, String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let chain = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
    ClientVerifier::new(chain.unwrap(), options.group, &options.client_sans)
}

fn with_names(names: &[&str]) -> TlsOptions {
    let client_sans = names.iter().map(|&name| name.to_owned()).collect();
    TlsOptions { client_sans, ..options(Path::new("/")) }
}

#[test]
fn a_client_has_one_of_the_allowed_names() {
    let authority = Authority::new();
    let is_allowed = |allowed: &[&str], names: &[&str]| {
        let verifier = verifier(&authority, &with_names(allowed)).unwrap();
        let certificate = der(&authority.sign(names));
        verifier.verify_client_cert(&certificate, &[], UnixTime::now()).is_ok()
    };
    let spiffe = "spiffe://cluster.local/ns/edge/sa/envoy";
    for (allowed, names) in [
        (&[][..], &["anyone.test"][..]),
        (&["envoy.test"], &["envoy.test"]),
        (&["ENVOY.test"], &["other.test", "envoy.test"]),
        (&["other.test", "envoy.test"], &["envoy.test"]),
        // The certificate's wildcard, for one label.
        (&["a.envoy.test"], &["*.envoy.test"]),
        (&["*.envoy.test"], &["*.envoy.test"]),
        (&["10.1.2.3"], &["10.1.2.3"]),
        (&["::1"], &["::1"]),
        (&["[::1]"], &["::1"]),
        (&[spiffe], &[spiffe]),
        (&["other.test", spiffe], &["envoy.test", spiffe]),
        (&["spiffe://cluster.local/ns/edge/*"], &[spiffe]),
    ] {
        assert!(is_allowed(allowed, names), "{allowed:?} {names:?}");
    }
    for (allowed, names) in [
        (&["envoy.test"][..], &["other.test"][..]),
        (&["envoy.test"], &["envoy.test.other.test"]),
        (&["envoy.test"], &[spiffe]),
        (&["b.a.envoy.test"], &["*.envoy.test"]),
        (&["envoy.test"], &["*.envoy.test"]),
        (&["*.envoy.test"], &["a.envoy.test"]),
        (&["10.1.2.3"], &["10.1.2.4"]),
        (&[spiffe], &["spiffe://cluster.local/ns/edge/sa/envoy2"]),
        (&[spiffe], &["spiffe://cluster.local/ns/edge/sa"]),
        (&[spiffe], &["envoy.test"]),
        (&["spiffe://cluster.local/ns/edge/*"], &["spiffe://cluster.local/ns/edge2/sa/x"]),
        (&["spiffe://cluster.local/ns/edge/*"], &["spiffe://cluster.local/ns/edge/"]),
    ] {
        assert!(!is_allowed(allowed, names), "{allowed:?} {names:?}");
    }
}

#[test]
fn a_name_does_not_help_without_the_authority() {
    let verifier = verifier(&Authority::new(), &with_names(&["envoy.test"])).unwrap();
    let other = Authority::named("other authority").sign(&["envoy.test"]);
    let refused = verifier.verify_client_cert(&der(&other), &[], UnixTime::now());
    assert!(matches!(refused, Err(Error::InvalidCertificate(_))), "{refused:?}");
}

#[test]
fn names_that_no_certificate_has_are_errors() {
    let authority = Authority::new();
    for bad in [
        "a b",
        "a.*.test",
        "",
        "spiffe:///",
        "spiffe://*/ns/edge",
        "spiffe://cluster.local/ns/*/sa",
        "://cluster.local",
    ] {
        let error = verifier(&authority, &with_names(&[bad])).unwrap_err();
        assert!(error.starts_with(&format!("grpc.tls.client_sans has {bad:?}; ")), "{error}");
    }
}

/// A directory with the files of a server.
fn directory(authority: &Authority) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    authority.sign(&["weir.test"]).write(directory.path(), "tls");
    directory
}

#[test]
fn unusable_files_are_named() {
    let authority = Authority::new();
    let directory = directory(&authority);
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("nonsense"), "hello").unwrap();
    std::fs::write(path("ca"), &authority.pem).unwrap();
    let other = authority.sign(&["other.test"]);
    other.write(directory.path(), "other");
    std::fs::write(path("cut"), other.cert.replace("-----END", "-----")).unwrap();
    let good = TlsOptions { client_ca: Some(path("ca")), ..options(directory.path()) };
    Certificates::load(good.clone()).unwrap();
    let certificates = "name a file with certificates in PEM";
    for (options, setting, cause) in [
        (TlsOptions { cert: path("none"), ..good.clone() }, "cert names ", "No such file"),
        (TlsOptions { cert: path("nonsense"), ..good.clone() }, "cert names ", certificates),
        (TlsOptions { cert: path("cut"), ..good.clone() }, "cert names ", certificates),
        (TlsOptions { key: path("none"), ..good.clone() }, "key names ", "No such file"),
        (TlsOptions { key: path("tls.pem"), ..good.clone() }, "key names ", "a private key in PEM"),
        (TlsOptions { key: path("other-key.pem"), ..good.clone() }, "cert names ", "its own key"),
        (
            TlsOptions { client_ca: Some(path("none")), ..good.clone() },
            "client_ca names ",
            "No such",
        ),
        (
            TlsOptions { client_ca: Some(path("nonsense")), ..good },
            "client_ca names ",
            certificates,
        ),
    ] {
        let error = Certificates::load(options).unwrap_err().to_string();
        let names_setting = error.starts_with(&format!("grpc.tls.{setting}"));
        assert!(names_setting && error.contains(cause), "{setting:?} {cause:?}: {error}");
    }
}

#[test]
fn a_changed_set_replaces_the_active_one_if_it_is_valid() {
    let authority = Authority::new();
    let directory = directory(&authority);
    let certificates = Certificates::load(options(directory.path())).unwrap();
    let counts = || {
        let metrics = &certificates.metrics;
        (metrics.reloads.get(), metrics.reload_failures.get())
    };
    let before = certificates.active();
    let is_unchanged = || Arc::ptr_eq(&before, &certificates.active());
    certificates.poll();
    assert!(is_unchanged() && counts() == (0, 0), "nothing has changed");

    // Half of a change is not reported until it has stayed so.
    let renewed = authority.sign(&["renewed.test"]);
    std::fs::write(directory.path().join("tls.pem"), &renewed.cert).unwrap();
    certificates.poll();
    assert_eq!(counts(), (0, 0));
    for _ in 0..3 {
        certificates.poll();
        assert_eq!(counts(), (0, 1), "reported once");
    }
    assert!(is_unchanged());

    renewed.write(directory.path(), "tls");
    certificates.poll();
    assert!(!is_unchanged());
    assert_eq!(counts(), (1, 1));

    assert!(certificates.rejected().is_none());

    std::fs::remove_file(directory.path().join("tls-key.pem")).unwrap();
    certificates.poll();
    certificates.poll();
    assert_eq!(counts(), (1, 2));
    assert!(certificates.rejected().is_some());
    // The same as before is no reload.
    renewed.write(directory.path(), "tls");
    certificates.poll();
    assert_eq!(counts(), (1, 2));
    assert!(certificates.rejected().is_none());
    // And the same error after that is a new one.
    std::fs::remove_file(directory.path().join("tls-key.pem")).unwrap();
    certificates.poll();
    certificates.poll();
    assert_eq!(counts(), (1, 3));
}

#[test]
fn a_certificate_that_is_a_fifo_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    for name in [&options.cert, &options.key] {
        assert!(std::process::Command::new("mkfifo").arg(name).status().unwrap().success());
    }
    let error = Certificates::load(options).unwrap_err().to_string();
    assert!(error.contains("it is a FIFO and not a regular file"), "{error}");
}

/// Collects the gauges of a source: name, listener and value.
#[derive(Default)]
struct Gauges {
    family: &'static str,
    all: Vec<(&'static str, String, f64)>,
}

impl MetricSink for Gauges {
    fn family(&mut self, family: MetricFamily) {
        self.family = family.name;
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>) {
        let SampleValue::Gauge(value) = value else { panic!("{} is no gauge", self.family) };
        self.all.push((self.family, labels[0].1.to_owned(), value));
    }
}

#[test]
fn certificates_that_are_served_and_presented_are_listed_with_their_dates() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    authority.sign_between(&["weir.test"], (2020, 1, 1), (2030, 1, 1)).write(path, "tls");
    authority.sign_between(&["client.test"], (2021, 1, 1), (2031, 1, 1)).write(path, "client");
    let file = |name: &str| Some(PemFile { setting: "a setting", path: path.join(name) });
    std::fs::write(path.join("ca"), &authority.pem).unwrap();
    let files =
        ClientFiles { ca: file("ca"), cert: file("client.pem"), key: file("client-key.pem") };
    let presented = Arc::new(ClientCertificates::new(files));
    let mut identities = Identities::default();
    identities.serve(Certificates::load(options(path)).unwrap());
    identities.present("redis", presented.clone());
    // Without a client certificate.
    let ca_only = ClientFiles { ca: file("ca"), ..ClientFiles::default() };
    identities.present("otlp", Arc::new(ClientCertificates::new(ca_only)));

    let served = json!({
        "listener": "grpc", "subject": "CN=weir.test",
        "not_before": "2020-01-01T00:00:00Z", "not_after": "2030-01-01T00:00:00Z",
    });
    assert_eq!(identities.to_json(), json!([served]), "no connection has read the other's files");
    presented.read().unwrap();
    let client = json!({
        "listener": "redis", "subject": "CN=client.test",
        "not_before": "2021-01-01T00:00:00Z", "not_after": "2031-01-01T00:00:00Z",
    });
    assert_eq!(identities.to_json(), json!([served, client]));

    std::fs::remove_file(path.join("client.pem")).unwrap();
    presented.read().unwrap();
    let mut gauges = Gauges::default();
    identities.collect(&mut gauges);
    let [not_before, not_after, successful] = [
        "tls_certificate_not_before_timestamp_seconds",
        "tls_certificate_not_after_timestamp_seconds",
        "tls_last_load_successful",
    ];
    let wanted = [
        (not_before, "grpc", 1_577_836_800.0),
        (not_before, "redis", 1_609_459_200.0),
        (not_after, "grpc", 1_893_456_000.0),
        (not_after, "redis", 1_924_992_000.0),
        (successful, "grpc", 1.0),
        (successful, "redis", 0.0),
        (successful, "otlp", 1.0),
    ];
    assert_eq!(gauges.all, wanted.map(|(name, of, value)| (name, of.to_owned(), value)));
}
