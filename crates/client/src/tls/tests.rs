use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
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

#[cfg(feature = "http")]
#[tokio::test]
async fn a_server_of_http2_has_to_choose_it() {
    use crate::http::{Target, connect};

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

/// Makes certificates as in many guides: self-signed, and therefore of a CA.
fn openssl(directory: &Path, name: &str) {
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "10"])
        .args(["-subj", "/CN=redis", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-keyout", &format!("{name}-key"), "-out", name])
        .current_dir(directory)
        .output()
        .expect("`scripts/test` installs openssl");
    assert!(made.status.success(), "{made:?}");
}

fn certificate(directory: &Path, name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(directory.join(name)).unwrap()
}

/// Returns the error of a handshake with a server that presents a certificate and signs with a key.
async fn handshake(
    client: ClientTls,
    chain: Vec<CertificateDer<'static>>,
    key: PathBuf,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let key = any_supported_type(&key).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_protocol_versions(versions).unwrap().with_no_client_auth();
    // Does not compare them.
    let presented = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let config = builder.with_cert_resolver(Arc::new(presented));
    let (near, far) = tokio::io::duplex(1 << 16);
    let server = tokio::spawn(tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(far));
    let connected = client.connect(near).await.map(drop).map_err(|error| error.to_string());
    let _ = server.await;
    connected
}

#[tokio::test]
async fn a_configured_certificate_is_accepted_as_that_of_the_server() {
    let (directory, _) = written();
    let path = directory.path();
    openssl(path, "own");
    openssl(path, "stranger");
    let [own, stranger, leaf] = ["own", "stranger", "cert"].map(|name| certificate(path, name));
    let trusting = |ca: &'static str| {
        let files = ClientFiles { ca: file(path, ca), ..ClientFiles::default() };
        ClientCertificates::new(files).read().unwrap()
    };
    let both = [fs::read(path.join("ca")).unwrap(), fs::read(path.join("own")).unwrap()].concat();
    fs::write(path.join("both"), both).unwrap();
    let client = |ca, name| ClientTls::new(&trusting(ca), name, false).unwrap();
    let key = |name: &str| path.join(name);
    for versions in [[&version::TLS12], [&version::TLS13]] {
        let connect = async |client, chain: &[&CertificateDer<'static>], key| {
            let chain = chain.iter().map(|&certificate| certificate.clone()).collect();
            handshake(client, chain, key, &versions).await
        };
        for name in ["localhost", "127.0.0.1"] {
            assert_eq!(connect(client("own", name), &[&own], key("own-key")).await, Ok(()));
        }
        let localhost = |ca| client(ca, "localhost");
        assert_eq!(connect(localhost("both"), &[&own], key("own-key")).await, Ok(()));
        assert_eq!(connect(localhost("both"), &[&leaf], key("key")).await, Ok(()));
        // One that somebody else has signed, and intermediates, which are ignored.
        assert_eq!(connect(localhost("cert"), &[&leaf, &own], key("key")).await, Ok(()));
        let error = connect(client("own", "elsewhere"), &[&own], key("own-key")).await.unwrap_err();
        assert!(error.contains("not valid for name"), "{error}");
        let any_name = ClientTls::new(&trusting("own"), "elsewhere", true).unwrap();
        assert_eq!(connect(any_name, &[&own], key("own-key")).await, Ok(()));
        // The certificate is public: its key is what proves who the server is.
        let error = connect(localhost("own"), &[&own], key("stranger-key")).await.unwrap_err();
        assert!(error.contains("BadSignature"), "{error}");
        for chain in [&[&stranger] as &[_], &[&stranger, &own]] {
            let error = connect(localhost("own"), chain, key("stranger-key")).await.unwrap_err();
            assert!(error.contains("CaUsedAsEndEntity"), "{error}");
        }
    }
}

#[test]
fn the_dates_of_a_configured_certificate_count() {
    let (directory, _) = written();
    let path = directory.path();
    openssl(path, "own");
    for name in ["own", "cert"] {
        let ca = Some(vec![certificate(path, name)]);
        let pem = ClientPem { ca, identity: None };
        for any_name in [false, true] {
            let verifier = ServerVerifier::new(&pem, any_name).unwrap();
            let verified = |days: i64| {
                let seconds = UnixTime::now().as_secs().cast_signed() + days * 86_400;
                let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds.cast_unsigned()));
                let host = ServerName::try_from("localhost").unwrap();
                let own = certificate(path, name);
                verifier.verify_server_cert(&own, &[], &host, &[], now).map(drop)
            };
            let day = |days| verified(days).map_err(|error| error.to_string());
            assert_eq!(day(0), Ok(()));
            let (before, after) = if name == "own" { (-1, 11) } else { (-20_000, 800_000) };
            assert!(day(before).unwrap_err().contains("not valid yet"), "{:?}", day(before));
            assert!(day(after).unwrap_err().contains("expired"), "{:?}", day(after));
        }
    }
}
