//! Encrypted connections.

use std::path::Path;

use super::servers::{Config, Server};
use super::*;
use weir_client::tls::{ClientCertificates, ClientFiles, PemFile};

fn file(path: &Path) -> Option<PemFile> {
    Some(PemFile { setting: "store.redis.tls", path: path.to_owned() })
}

fn tls(files: ClientFiles) -> Tls {
    let certificates = Arc::new(ClientCertificates::new(files));
    Tls { certificates, skip_hostname_verification: false }
}

/// The files of a client that the server accepts.
fn client_files(server: &Server) -> ClientFiles {
    let files = server.certificates();
    ClientFiles {
        ca: file(&files.ca),
        cert: file(&files.client_cert),
        key: file(&files.client_key),
    }
}

fn with_tls(server: &Server, host: &str, tls: &Tls) -> RedisOptions {
    let topology = Topology::Single(Endpoint::Tcp(host.into(), server.port()));
    let mut options = options(topology);
    options.access.tls = Some(tls.clone());
    options
}

/// Opens a connection and sends a PING.
async fn ping(server: &Server, host: &str, tls: &Tls) -> Result<String, String> {
    let options = with_tls(server, host, tls);
    let Topology::Single(endpoint) = &options.topology else { unreachable!() };
    let connection = handshake::connect(&options.access, endpoint).await;
    let mut connection = connection.map_err(|error| error.to_string())?;
    let pong = connection.query::<String>(&redis::cmd("PING")).await;
    pong.map_err(|error| error.to_string())
}

#[test]
fn connects_with_client_certificates() {
    let lines = vec!["bind 127.0.0.1 127.0.0.2".to_owned()];
    let server = Server::with(Config { tls: true, lines, ..Config::default() });
    let files = client_files(&server);
    let good = tls(files.clone());
    runtime().block_on(async {
        let store = connected(with_tls(&server, "127.0.0.1", &good)).await;
        assert!(try_take(&store, "a", &plan(1, Unit::Day)).await.is_ok());
        assert_eq!(ping(&server, "localhost", &good).await.as_deref(), Ok("PONG"));

        let bare = tls(ClientFiles { cert: None, key: None, ..files.clone() });
        assert!(ping(&server, "localhost", &bare).await.is_err(), "no client certificate");
        let untrusted = tls(ClientFiles { ca: None, ..files.clone() });
        assert!(ping(&server, "localhost", &untrusted).await.is_err(), "an unknown authority");
        let missing = tls(ClientFiles { ca: file("/nowhere.pem".as_ref()), ..files });
        let error = ping(&server, "localhost", &missing).await.unwrap_err();
        assert!(error.starts_with("store.redis.tls names /nowhere.pem: No such file"), "{error}");
        assert!(with_tls(&server, "localhost", &missing).check().is_err());
        // A name that is not in the certificate.
        let error = ping(&server, "127.0.0.2", &good).await.unwrap_err();
        assert!(error.contains("not valid for name"), "{error}");
        let any_name = Tls { skip_hostname_verification: true, ..good };
        assert_eq!(ping(&server, "127.0.0.2", &any_name).await.as_deref(), Ok("PONG"));
    });
}

#[test]
fn reconnects_with_the_last_good_certificates_and_with_renewed_ones() {
    let mut server = Server::with(Config { tls: true, ..Config::default() });
    let files = server.certificates().clone();
    // Not the file of the server, which reads its own when it starts.
    let ca = server.directory().join("client-ca.pem");
    std::fs::copy(&files.ca, &ca).unwrap();
    let client_files = ClientFiles { ca: file(&ca), ..client_files(&server) };
    let certificates = tls(client_files.clone());
    runtime().block_on(async {
        let store = connected(with_tls(&server, "localhost", &certificates)).await;
        // The key of another certificate, and a CA that cannot be read.
        std::fs::copy(&files.stranger_key, &files.client_key).unwrap();
        std::fs::write(&ca, "nonsense").unwrap();
        let fresh = tls(client_files);
        assert!(ping(&server, "localhost", &fresh).await.is_err(), "nothing to keep");
        server.restart();
        let plan = plan(100, Unit::Day);
        until("the store to reconnect", async || try_take(&store, "a", &plan).await.is_ok()).await;
        assert_eq!(ping(&server, "localhost", &certificates).await.as_deref(), Ok("PONG"));

        // The certificate to that key, as after a renewal.
        let last_good = certificates.certificates.read().unwrap();
        std::fs::copy(&files.ca, &ca).unwrap();
        std::fs::copy(&files.stranger_cert, &files.client_cert).unwrap();
        assert_eq!(ping(&server, "localhost", &certificates).await.as_deref(), Ok("PONG"));
        assert_ne!(certificates.certificates.read().unwrap(), last_good);
    });
}

/// As `openssl req -x509` makes it.
#[test]
fn a_self_signed_certificate_is_its_own_ca() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(path("own"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(path("key"), key.serialize_pem()).unwrap();
    let lines = vec![
        format!("tls-cert-file {}", path("own").display()),
        format!("tls-key-file {}", path("key").display()),
        "tls-auth-clients no".to_owned(),
    ];
    let server = Server::with(Config { tls: true, lines, ..Config::default() });
    let own = tls(ClientFiles { ca: file(&path("own")), ..ClientFiles::default() });
    runtime().block_on(async {
        assert_eq!(ping(&server, "localhost", &own).await.as_deref(), Ok("PONG"));
    });
}
