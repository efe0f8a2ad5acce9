//! Makes the rustls configuration of a TLS client from its certificates, verifies servers, and does the handshake.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::pem::{ClientPem, system_roots};

/// The ALPN name of HTTP/2.
const HTTP2: &[u8] = b"h2";

/// A TLS client that is configured for one server.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Why a connection cannot be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// The name of the server is invalid.
    #[error("{0:?} is not a host")]
    Name(String),
    /// The certificates cannot be used.
    #[error("{0}")]
    Certificates(String),
}

impl ClientTls {
    /// Prepares TLS to a server with this name, or IP address, in its certificate; with `any_name`, with any name.
    pub fn new(pem: &ClientPem, name: &str, any_name: bool) -> Result<ClientTls, ClientTlsError> {
        let server_name = ServerName::try_from(name.to_owned());
        let server_name = server_name.map_err(|_| ClientTlsError::Name(name.to_owned()))?;
        let config = config(pem, any_name).map_err(ClientTlsError::Certificates)?;
        Ok(ClientTls { config: Arc::new(config), name: server_name })
    }

    /// Requires that the server chooses HTTP/2 (ALPN).
    #[must_use]
    pub fn with_http2(mut self) -> ClientTls {
        Arc::make_mut(&mut self.config).alpn_protocols = vec![HTTP2.to_vec()];
        self
    }

    /// Verifies the server at the other end of a connection, and that it speaks the required protocol.
    pub async fn connect<S>(self, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let requires_http2 = !self.config.alpn_protocols.is_empty();
        let stream = TlsConnector::from(self.config).connect(self.name, socket).await?;
        if requires_http2 && stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            return Err(io::Error::other("the server does not offer HTTP/2 (ALPN h2)"));
        }
        Ok(stream)
    }
}

/// With `any_name`, a valid certificate is accepted for any host.
fn config(pem: &ClientPem, any_name: bool) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let verifier = Arc::new(ServerVerifier::new(pem, any_name)?);
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let Some((cert, key)) = &pem.identity else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| error.to_string())?;
    let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| error.to_string())?;
    builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
}

/// Verifies servers. One of the configured certificates is accepted as the server's own, too, as by OpenSSL and Go.
#[derive(Debug)]
pub struct ServerVerifier {
    chain: Arc<WebPkiServerVerifier>,
    /// The configured certificates; none of the system's.
    configured: Vec<CertificateDer<'static>>,
    /// Accepts a valid certificate, whatever its names.
    any_name: bool,
}

impl ServerVerifier {
    /// Trusts the configured certificates, or without any the system's roots.
    pub fn new(pem: &ClientPem, any_name: bool) -> Result<ServerVerifier, String> {
        let configured = pem.ca.clone().unwrap_or_default();
        let roots = match pem.ca {
            Some(_) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(configured.iter().cloned());
                roots
            }
            // There are some, as reading the files has checked.
            None => system_roots(),
        };
        let provider = Arc::new(ring::default_provider());
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let chain = chain.map_err(|error| error.to_string())?;
        Ok(ServerVerifier { chain, configured, any_name })
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.configured.iter().any(|configured| configured == certificate) {
            return self.chain.verify_server_cert(certificate, chain, name, ocsp, now);
        }
        match self.chain.verify_server_cert(certificate, &[], name, ocsp, now) {
            Err(Error::InvalidCertificate(error)) if is_about_issuer(&error) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
                    .map(|()| ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }
}

/// Returns whether an error is only about who signed a certificate, or that it is one of a CA. webpki checks both after
/// the dates, which a test holds.
fn is_about_issuer(error: &CertificateError) -> bool {
    let is_ca = |error: &OtherError| {
        error.0.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity)
    };
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => true,
        CertificateError::Other(error) => is_ca(error),
        _ => false,
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is compared last.
        match self.verify(certificate, chain, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.any_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
