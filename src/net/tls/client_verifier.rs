//! Verifies client certificates (mutual TLS): the chain against the listener's `client_ca`, the names by `client_sans`.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::EndEntityCert;

#[derive(Debug)]
pub(super) struct ClientVerifier {
    /// Verifies the chain, against the given authorities and no others.
    chain: Arc<dyn ClientCertVerifier>,
    /// If there are none, all certificates of the authorities are accepted.
    names: Vec<AllowedName>,
    /// The group of the listener's settings, for errors: `grpc.tls`.
    group: &'static str,
}

/// A name that is allowed: a client certificate must have one of them.
#[derive(Debug)]
enum AllowedName {
    /// A DNS name or an address. The certificate may have a wildcard for it.
    Host(ServerName<'static>),
    /// `*.example.com`: the certificate must have the same wildcard, as in envoyproxy/ratelimit.
    Wildcard(String),
    Uri(String),
    /// All URIs that start so; ends in a slash.
    UriPrefix(String),
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("the client certificate has no name that {group}.client_sans allows")]
struct NameNotAllowed {
    group: &'static str,
}

impl ClientVerifier {
    /// Adds the allowed names to the verification of the chain. An error is for a name that no certificate can have.
    pub fn new(
        chain: Arc<dyn ClientCertVerifier>,
        group: &'static str,
        client_sans: &[String],
    ) -> Result<ClientVerifier, String> {
        let names = client_sans.iter().map(|name| {
            let allowed = if name.contains("://") { uri(name) } else { host(name) };
            allowed.ok_or_else(|| {
                format!(
                    "{group}.client_sans has {name:?}; write a DNS name, an IP address, or a URI such as \
                     spiffe://cluster.local/ns/edge/sa/envoy"
                )
            })
        });
        Ok(ClientVerifier { chain, names: names.collect::<Result<_, String>>()?, group })
    }

    fn verify_name(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        if self.names.is_empty() {
            return Ok(());
        }
        let certificate = EndEntityCert::try_from(certificate)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if self.names.iter().any(|name| name.is_name_of(&certificate)) {
            return Ok(());
        }
        let error = OtherError(Arc::new(NameNotAllowed { group: self.group }));
        Err(Error::InvalidCertificate(CertificateError::Other(error)))
    }
}

impl AllowedName {
    fn is_name_of(&self, certificate: &EndEntityCert<'_>) -> bool {
        match self {
            AllowedName::Host(name) => certificate.verify_is_valid_for_subject_name(name).is_ok(),
            AllowedName::Wildcard(wildcard) => {
                certificate.valid_dns_names().any(|name| name.eq_ignore_ascii_case(wildcard))
            }
            AllowedName::Uri(uri) => certificate.valid_uri_names().any(|name| name == uri),
            AllowedName::UriPrefix(prefix) => certificate
                .valid_uri_names()
                .any(|name| name.len() > prefix.len() && name.starts_with(prefix)),
        }
    }
}

/// Reads a DNS name, with or without a wildcard, or an address, with or without brackets.
fn host(name: &str) -> Option<AllowedName> {
    if let Some(parent) = name.strip_prefix("*.") {
        let ServerName::DnsName(_) = ServerName::try_from(parent).ok()? else { return None };
        return Some(AllowedName::Wildcard(name.to_owned()));
    }
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    ServerName::try_from(address.unwrap_or(name).to_owned()).ok().map(AllowedName::Host)
}

fn uri(uri: &str) -> Option<AllowedName> {
    let (scheme, rest) = uri.split_once("://")?;
    if scheme.is_empty() || rest.is_empty() || rest.starts_with('/') {
        return None;
    }
    let (plain, name) = match rest.strip_suffix("/*") {
        Some(plain) => (plain, AllowedName::UriPrefix(uri.trim_end_matches('*').to_owned())),
        None => (rest, AllowedName::Uri(uri.to_owned())),
    };
    // A wildcard elsewhere would match nothing.
    (!plain.contains('*')).then_some(name)
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        self.verify_name(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
