//! Certificates for one server and its clients.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Files in PEM format.
#[derive(Clone, Debug)]
pub struct Certificates {
    pub ca: PathBuf,
    pub server_cert: PathBuf,
    pub server_key: PathBuf,
    pub client_cert: PathBuf,
    pub client_key: PathBuf,
    /// For a different host.
    pub stranger_cert: PathBuf,
    pub stranger_key: PathBuf,
}

impl Certificates {
    /// Creates certificates in `directory`.
    pub fn make(directory: &Path) -> Certificates {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let write = |name: &str, text: String| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let ca = write("ca.pem", issuer.pem());
        let issue = |name: &str, hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(hosts).unwrap();
            // A certificate with its issuer's name would count as self-signed.
            params.distinguished_name.push(DnType::CommonName, name);
            let cert = params.signed_by(&key, &issuer).unwrap();
            (
                write(&format!("{name}.pem"), cert.pem()),
                write(&format!("{name}-key.pem"), key.serialize_pem()),
            )
        };
        let (server_cert, server_key) = issue("server", &["localhost", "127.0.0.1"]);
        let (client_cert, client_key) = issue("client", &["client"]);
        let (stranger_cert, stranger_key) = issue("stranger", &["stranger"]);
        Certificates {
            ca,
            server_cert,
            server_key,
            client_cert,
            client_key,
            stranger_cert,
            stranger_key,
        }
    }
}
