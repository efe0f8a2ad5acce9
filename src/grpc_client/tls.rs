//! TLS of connections to a gRPC server.

use std::io;

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use weir_common::client_tls::{ClientPem, ClientTls, ClientTlsError};

/// How to verify a gRPC server.
#[derive(Clone, Debug)]
pub struct GrpcTls(ClientTls);

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
            "" => host.trim_start_matches('[').trim_end_matches(']'),
            name => name,
        };
        let tls = ClientTls::new(pem, name, false).map_err(|error| match error {
            ClientTlsError::Name(_) if !server_name.is_empty() => GrpcTlsError::ServerName,
            error => GrpcTlsError::Other(error.to_string()),
        })?;
        Ok(GrpcTls(tls.with_http2()))
    }

    /// Verifies the server.
    ///
    /// # Errors
    ///
    /// It cannot be verified, or does not speak HTTP/2.
    pub async fn connect(self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.connect(socket).await
    }
}
