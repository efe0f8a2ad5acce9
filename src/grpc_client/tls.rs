//! TLS of connections to a gRPC server.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use weir_common::client_tls::{ClientPem, config};

/// The protocol that both sides have to speak.
const HTTP2: &[u8] = b"h2";

/// How to verify a gRPC server.
#[derive(Clone, Debug)]
pub struct GrpcTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Why a server cannot be verified.
#[derive(Debug)]
pub enum GrpcTlsError {
    /// The name is no DNS name.
    ServerName,
    Other(String),
}

impl GrpcTls {
    /// Prepares TLS to a host. If `server_name` is not empty, it is the name in the server's certificate.
    ///
    /// # Errors
    ///
    /// The name is invalid, or the certificates cannot be used.
    pub fn new(pem: &ClientPem, host: &str, server_name: &str) -> Result<GrpcTls, GrpcTlsError> {
        let name = match server_name {
            "" => {
                ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']').to_owned())
                    .map_err(|_| GrpcTlsError::Other(format!("{host:?} is not a host")))?
            }
            name => ServerName::try_from(name.to_owned()).map_err(|_| GrpcTlsError::ServerName)?,
        };
        let mut config = config(pem, false).map_err(GrpcTlsError::Other)?;
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(GrpcTls { config: Arc::new(config), name })
    }

    /// Verifies the server.
    ///
    /// # Errors
    ///
    /// It cannot be verified, or does not speak HTTP/2.
    pub async fn connect(self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let stream = TlsConnector::from(self.config).connect(self.name, socket).await?;
        match stream.get_ref().1.alpn_protocol() {
            Some(HTTP2) => Ok(stream),
            _ => Err(io::Error::other("the server does not offer HTTP/2 (ALPN h2)")),
        }
    }
}
