//! What a certificate says about itself: whose it is, and when it is valid.

mod der;
mod read;
mod subject;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// The facts of a certificate that operators need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// As in RFC 4514: `CN=weir,O=Example`. Of a certificate without a subject, its first DNS name or
    /// URI.
    pub subject: String,
    /// The first second in which it is valid, since 1970.
    pub not_before: i64,
    /// The last second in which it is valid, since 1970.
    pub not_after: i64,
}

impl Certificate {
    /// Returns the first certificate of a PEM file; none if it is malformed.
    pub fn from_pem(pem: &[u8]) -> Option<Certificate> {
        Certificate::from_der(&CertificateDer::from_pem_slice(pem).ok()?)
    }

    /// Returns the end, for people; none if it is no date.
    pub fn expires(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.not_after).ok()
    }
}
