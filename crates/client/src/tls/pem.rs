//! Reads and checks the PEM files of a TLS client: certificates to trust, client certificate and key.

use std::fmt::{self, Display};
use std::path::PathBuf;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use weir_common::error::SetupError;
use weir_common::file_reads::FileReads;
use weir_common::secret::shown_path;

/// A PEM file, with the setting that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemFile {
    /// The setting, for errors.
    pub setting: &'static str,
    /// The path of the file.
    pub path: PathBuf,
}

/// The content of a client's files, which was checked.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientPem {
    /// Trust anchors only.
    pub ca: Option<Vec<CertificateDer<'static>>>,
    /// The client certificate and its key, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for ClientPem {
    /// Leaves out the content: one part is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientPem").finish_non_exhaustive()
    }
}

/// Reads the certificates of a file that can be trust anchors, as envoyproxy/ratelimit does. System bundles have more.
pub(super) fn trust_anchors(
    file: &PemFile,
    reads: &FileReads,
) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let (_, mut certificates) = certificates(file, reads)?;
    let mut roots = RootCertStore::empty();
    certificates.retain(|certificate| roots.add(certificate.clone()).is_ok());
    if certificates.is_empty() {
        return Err(invalid(file, &"none can be trusted", "X.509 certificates of a CA in PEM"));
    }
    Ok(certificates)
}

pub(super) fn identity(
    cert: &PemFile,
    key: &PemFile,
    reads: &FileReads,
) -> Result<(Vec<u8>, Vec<u8>), SetupError> {
    let (cert_pem, chain) = certificates(cert, reads)?;
    let key_pem = read(key, reads)?;
    let private = PrivateKeyDer::from_pem_slice(&key_pem)
        .map_err(|error| invalid(key, &error, "a private key in PEM"))?;
    // Checks that they belong together too.
    match CertifiedKey::from_der(chain, private, &ring::default_provider()) {
        Ok(_) => Ok((cert_pem, key_pem)),
        Err(error) => Err(SetupError::Invalid(format!(
            "{} and {} cannot be used: {error}; name a certificate ({}) and its key ({})",
            cert.setting,
            key.setting,
            cert.path.display(),
            key.path.display(),
        ))),
    }
}

pub(super) fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

pub(super) fn check_system_roots() -> Result<(), SetupError> {
    if !system_roots().is_empty() {
        return Ok(());
    }
    let missing = "the system's certificates cannot be used: none are found; install them, or \
                   name a file of certificates to trust";
    Err(SetupError::Unavailable(missing.to_owned()))
}

/// Reads a file with at least one certificate.
fn certificates(
    file: &PemFile,
    reads: &FileReads,
) -> Result<(Vec<u8>, Vec<CertificateDer<'static>>), SetupError> {
    let wanted = "certificates in PEM";
    let pem = read(file, reads)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(invalid(file, &"it has none", wanted)),
        Ok(all) => Ok((pem, all)),
        Err(error) => Err(invalid(file, &error, wanted)),
    }
}

fn read(file: &PemFile, reads: &FileReads) -> Result<Vec<u8>, SetupError> {
    reads.read(&file.path).map_err(|error| {
        SetupError::Unavailable(unusable(file, &error, "an existing file that weir may read"))
    })
}

fn invalid(file: &PemFile, error: &dyn Display, wanted: &str) -> SetupError {
    SetupError::Invalid(unusable(file, error, wanted))
}

fn unusable(file: &PemFile, error: &dyn Display, wanted: &str) -> String {
    let PemFile { setting, path } = file;
    let path = if setting.ends_with("key") { shown_path(path) } else { path.display().to_string() };
    format!("{setting} names {path}: {error}; name {wanted}")
}
