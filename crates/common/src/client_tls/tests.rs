use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::*;

fn file(directory: &Path, name: &'static str) -> Option<PemFile> {
    Some(PemFile { setting: name, path: directory.join(name) })
}

/// Writes a CA, a certificate that it signed, and its key.
fn write_set(directory: &Path) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let own = own.signed_by(&key, &Issuer::new(params, ca_key)).unwrap();
    fs::write(directory.join("ca"), ca.pem()).unwrap();
    fs::write(directory.join("cert"), own.pem()).unwrap();
    fs::write(directory.join("key"), key.serialize_pem()).unwrap();
}

fn written() -> (TempDir, ClientFiles) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_set(path);
    let files =
        ClientFiles { ca: file(path, "ca"), cert: file(path, "cert"), key: file(path, "key") };
    (directory, files)
}

#[test]
fn an_unusable_new_set_keeps_the_last_good_one_whole() {
    let (directory, files) = written();
    let certificates = ClientCertificates::new(files.clone());
    let path = directory.path();
    let first = certificates.read().unwrap();
    assert!(Arc::ptr_eq(&first, &certificates.read().unwrap()), "unchanged files");
    let old = ["ca", "cert", "key"].map(|name| fs::read(path.join(name)).unwrap());
    write_set(path);
    // The new certificate and CA beside the old key, as in the middle of a renewal.
    let new_key = fs::read(path.join("key")).unwrap();
    fs::write(path.join("key"), &old[2]).unwrap();
    assert!(certificates.rejected().is_none());
    assert_eq!(certificates.read().unwrap(), first);
    assert!(certificates.rejected().is_some() && certificates.in_use() == Some(first.clone()));
    fs::remove_file(path.join("key")).unwrap();
    assert_eq!(certificates.read().unwrap(), first);
    fs::write(path.join("key"), new_key).unwrap();
    let second = certificates.read().unwrap();
    assert!(certificates.rejected().is_none() && certificates.in_use() == Some(second.clone()));
    let identity = |pem: &ClientPem| pem.identity.clone().unwrap();
    assert!(second.ca != first.ca && identity(&second) != identity(&first));
    assert_eq!(identity(&first), (old[1].clone(), old[2].clone()));
    // From the start there is nothing to keep.
    fs::write(path.join("ca"), "nonsense").unwrap();
    assert_eq!(certificates.read().unwrap(), second);
    let error = ClientCertificates::new(files).read().unwrap_err().to_string();
    assert!(error.starts_with("ca names ") && error.contains("it has none"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn files_are_checked_without_a_connection() {
    let (directory, files) = written();
    let certificates = Arc::new(ClientCertificates::new(files));
    let first = certificates.read().unwrap();
    write_set(directory.path());
    let renewed = async {
        while certificates.last_good.lock().as_ref() == Some(&first) {
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = certificates.follow() => {}
        () = renewed => {}
    }
}

#[test]
fn unusable_files_are_named() {
    let (directory, _) = written();
    let path = directory.path();
    let cert = fs::read_to_string(path.join("cert")).unwrap();
    fs::write(path.join("other"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    fs::write(path.join("nonsense"), "hello").unwrap();
    fs::write(path.join("cut"), cert.replace("-----END", "-----")).unwrap();
    let no_certificate = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    fs::write(path.join("odd"), no_certificate).unwrap();
    let read = |ca: &str, cert: &str, key: &str| {
        let named = |setting, name: &str| {
            (!name.is_empty()).then(|| PemFile { setting, path: path.join(name) })
        };
        let files = ClientFiles {
            ca: named("a.ca", ca),
            cert: named("a.cert", cert),
            key: named("a.key", key),
        };
        ClientCertificates::new(files).read().map(drop)
    };
    assert_eq!(read("ca", "cert", "key"), Ok(()));
    for (files, start) in [
        (("none", "", ""), "a.ca names "),
        (("nonsense", "", ""), "a.ca names "),
        (("key", "", ""), "a.ca names "),
        (("cut", "", ""), "a.ca names "),
        (("odd", "", ""), "a.ca names "),
        (("ca", "key", "key"), "a.cert names "),
        (("ca", "odd", "key"), "a.cert and a.key "),
        (("ca", "cert", "none"), "a.key names "),
        (("ca", "cert", "nonsense"), "a.key names "),
        (("ca", "cert", "other"), "a.cert and a.key "),
        (("ca", "cert", ""), "a.cert is set without a key; name the key too"),
        (("ca", "", "key"), "a.key is set without a certificate; name the certificate too"),
    ] {
        let error = read(files.0, files.1, files.2).unwrap_err().to_string();
        assert!(error.starts_with(start) && error.contains("; name "), "{files:?} {error}");
    }
    // Some bundles have certificates that cannot be trusted.
    let ca = fs::read_to_string(path.join("ca")).unwrap();
    fs::write(path.join("bundle"), format!("{no_certificate}{ca}{no_certificate}")).unwrap();
    assert_eq!(read("bundle", "", ""), Ok(()));
}

#[cfg(feature = "http-client")]
#[tokio::test]
async fn a_server_of_http2_has_to_choose_it() {
    use rustls::ServerConfig;
    use rustls::crypto::ring::default_provider;
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};

    use crate::http_client::{Target, connect};

    let (directory, files) = written();
    let pem = |name: &str| directory.path().join(name);
    let certificate = CertificateDer::from_pem_file(pem("cert")).unwrap();
    let key = PrivateKeyDer::from_pem_file(pem("key")).unwrap();
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_single_cert(vec![certificate], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let target: Target = format!("https://localhost:{port}/").parse().unwrap();
    let server = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        drop(acceptor.accept(socket).await.unwrap());
    });
    let certificates = Arc::new(ClientCertificates::new(files));
    let connected = connect(&target, &certificates, true).await;
    let error = connected.map(drop).unwrap_err().to_string();
    assert!(error.contains("does not offer HTTP/2 (ALPN h2)"), "{error}");
    server.await.unwrap();
}
