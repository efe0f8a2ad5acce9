//! The configuration of TLS, from certificates.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::ClientPem;
use super::pem::system_roots;

/// With `any_name`, a valid certificate is accepted for any host.
pub(super) fn config(pem: &ClientPem, any_name: bool) -> Result<ClientConfig, String> {
    let roots = match &pem.ca {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(ca)?);
            roots
        }
        // There are some, as reading the files has checked.
        None => system_roots(),
    };
    let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match any_name {
        false => builder.with_root_certificates(roots),
        true => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            let verifier = AnyName(verifier.map_err(|error| error.to_string())?);
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let Some((cert, key)) = &pem.identity else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| error.to_string())?;
    builder.with_client_auth_cert(certificates(cert)?, key).map_err(|error| error.to_string())
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Verifies certificates, whatever their names.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is compared last.
        match self.0.verify_server_cert(certificate, chain, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
