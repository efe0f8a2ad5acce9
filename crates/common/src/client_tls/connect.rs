//! The handshake with a server.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::ClientPem;
use super::config::config;

/// The protocol that both sides of an HTTP/2 connection have to speak.
const HTTP2: &[u8] = b"h2";

/// How to verify a server.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Why a server cannot be verified.
#[derive(Debug, Error)]
pub enum ClientTlsError {
    #[error("{0:?} is not a host")]
    Name(String),
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
