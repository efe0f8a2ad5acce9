//! Certificates for tests: authorities, and what they sign.

#![allow(dead_code, reason = "each test target uses a part")]

use std::path::{Path, PathBuf};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// A certificate authority.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Authority {
        Authority::named("test authority")
    }

    pub fn named(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate for servers and clients with these subject alternative names: a URI if
    /// there is `://` in it, an address, or a DNS name.
    pub fn sign(&self, names: &[&str]) -> Identity {
        self.sign_key(names, KeyPair::generate().expect("a key"))
    }

    /// As [`sign`](Self::sign), with this key.
    pub fn sign_key(&self, names: &[&str], key: KeyPair) -> Identity {
        self.sign_params(params(names), key)
    }

    /// As [`sign`](Self::sign), valid between two dates: year, month, day.
    pub fn sign_between(&self, names: &[&str], from: Date, to: Date) -> Identity {
        let date = |(year, month, day)| rcgen::date_time_ymd(year, month, day);
        let mut params = params(names);
        (params.not_before, params.not_after) = (date(from), date(to));
        self.sign_params(params, KeyPair::generate().expect("a key"))
    }

    fn sign_params(&self, params: CertificateParams, key: KeyPair) -> Identity {
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity { cert: cert.pem(), key: key.serialize_pem() }
    }
}

/// Year, month, day.
type Date = (i32, u8, u8);

/// A certificate for servers and clients with these names.
fn params(names: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.subject_alt_names = names.iter().map(|name| subject_alt_name(name)).collect();
    // A certificate with its issuer's name would count as self-signed.
    params.distinguished_name.push(DnType::CommonName, names.first().copied().unwrap_or("leaf"));
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

impl Identity {
    /// Writes both into a directory, as `NAME.pem` and `NAME-key.pem`. Returns the paths.
    pub fn write(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let cert = directory.join(format!("{name}.pem"));
        let key = directory.join(format!("{name}-key.pem"));
        std::fs::write(&cert, &self.cert).expect("a file");
        std::fs::write(&key, &self.key).expect("a file");
        (cert, key)
    }
}

fn subject_alt_name(name: &str) -> SanType {
    let ia5 = || Ia5String::try_from(name).expect("ASCII");
    if name.contains("://") {
        return SanType::URI(ia5());
    }
    name.parse().map_or_else(|_| SanType::DnsName(ia5()), SanType::IpAddress)
}
