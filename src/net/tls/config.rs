//! Reads the certificate, key and client CA files of a listener, checks them, and makes rustls' configuration of them.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate::Certificate;
use super::client_verifier::ClientVerifier;
use weir_common::error::SetupError;
use weir_common::file_reads::FileReads;
use weir_common::secret::shown_path;

const CERTIFICATES: &str = "name a file with certificates in PEM";
const KEY: &str = "name a file with a private key in PEM";

/// The TLS settings of one listener. Files are in PEM format.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The group of the settings, for messages: `grpc.tls`.
    pub group: &'static str,
    pub listener: &'static str,
    /// The protocol that is negotiated, as in ALPN.
    pub protocol: &'static str,
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Where client certificates must come from; none if clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// The allowed names: a client must have one of them. If there are none, it may have any.
    pub client_sans: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Files {
    cert: Result<Vec<u8>, String>,
    key: Result<Vec<u8>, String>,
    client_ca: Option<Result<Vec<u8>, String>>,
}

#[derive(Debug)]
pub(super) struct Checked {
    pub config: Arc<ServerConfig>,
    /// None if it is malformed.
    pub certificate: Option<Certificate>,
}

impl Files {
    pub fn read(options: &TlsOptions, reads: &FileReads) -> Files {
        let read = |path: &PathBuf| reads.read(path).map_err(|error| error.to_string());
        Files {
            cert: read(&options.cert),
            key: read(&options.key),
            client_ca: options.client_ca.as_ref().map(read),
        }
    }

    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.cert, &self.key, &self.client_ca).hash(&mut hasher);
        hasher.finish()
    }

    /// Checks the files and makes a configuration of them. An error names the setting, the file, the cause and the fix.
    pub fn check(&self, options: &TlsOptions) -> Result<Checked, SetupError> {
        let provider = Arc::new(ring::default_provider());
        let cert = SettingFile { group: options.group, setting: "cert", path: &options.cert };
        let key = SettingFile { group: options.group, setting: "key", path: &options.key };
        let chain = cert.certificates(&self.cert)?;
        let private_key = key.private_key(&self.key)?;
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| SetupError::Invalid(format!("{}: {error}", options.group)))?;
        let config = match self.roots(options)? {
            None => config.with_no_client_auth(),
            Some((source, roots)) => {
                let inner = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let inner = inner.map_err(|error| source.invalid(&error, CERTIFICATES))?;
                let verifier = ClientVerifier::new(inner, options.group, &options.client_sans);
                let verifier = verifier.map_err(SetupError::Invalid)?;
                config.with_client_cert_verifier(Arc::new(verifier))
            }
        };
        let certificate = chain.first().and_then(Certificate::from_der);
        let mut config = config.with_single_cert(chain, private_key).map_err(|error| {
            let with_key =
                format!("with {}.key, {}: {error}", options.group, options.key.display());
            cert.invalid(&with_key, "name a certificate, followed by its chain, and its own key")
        })?;
        // Redis clients negotiate no protocol.
        if !options.protocol.is_empty() {
            config.alpn_protocols = vec![options.protocol.into()];
        }
        // Resuming would skip the verification of the client, whose certificate or whose authority may
        // have expired or been replaced since. Envoy keeps its connections for long.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Checked { config: Arc::new(config), certificate })
    }

    fn roots<'a>(
        &self,
        options: &'a TlsOptions,
    ) -> Result<Option<(SettingFile<'a>, Arc<RootCertStore>)>, SetupError> {
        let (Some(path), Some(contents)) = (&options.client_ca, &self.client_ca) else {
            return Ok(None);
        };
        let source = SettingFile { group: options.group, setting: "client_ca", path };
        let mut roots = RootCertStore::empty();
        for certificate in source.certificates(contents)? {
            roots.add(certificate).map_err(|error| source.invalid(&error, CERTIFICATES))?;
        }
        Ok(Some((source, Arc::new(roots))))
    }
}

#[derive(Clone, Copy, Debug)]
struct SettingFile<'a> {
    group: &'a str,
    setting: &'a str,
    path: &'a Path,
}

impl SettingFile<'_> {
    fn error(&self, cause: &dyn Display, help: &str) -> String {
        let SettingFile { group, setting, path } = self;
        let path = if *setting == "key" { shown_path(path) } else { path.display().to_string() };
        format!("{group}.{setting} names {path}: {cause}; {help}")
    }

    fn invalid(&self, cause: &dyn Display, help: &str) -> SetupError {
        SetupError::Invalid(self.error(cause, help))
    }

    fn contents<'c>(
        &self,
        contents: &'c Result<Vec<u8>, String>,
        help: &str,
    ) -> Result<&'c [u8], SetupError> {
        contents.as_deref().map_err(|error| SetupError::Unavailable(self.error(error, help)))
    }

    fn certificates(
        &self,
        contents: &Result<Vec<u8>, String>,
    ) -> Result<Vec<CertificateDer<'static>>, SetupError> {
        let pem = self.contents(contents, CERTIFICATES)?;
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match all {
            Ok(all) if all.is_empty() => Err(self.invalid(&"it has no certificate", CERTIFICATES)),
            Ok(all) => Ok(all),
            Err(error) => Err(self.invalid(&error, CERTIFICATES)),
        }
    }

    fn private_key(
        &self,
        contents: &Result<Vec<u8>, String>,
    ) -> Result<PrivateKeyDer<'static>, SetupError> {
        let pem = self.contents(contents, KEY)?;
        PrivateKeyDer::from_pem_slice(pem).map_err(|error| self.invalid(&error, KEY))
    }
}
