//! A TLS client for gRPC and for HTTP, without a library's idea of what a good server is.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::SendRequest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::PATIENCE;
use super::certificates::{Authority, Identity};
use crate::connections::{framed_request, head, send};

/// The name that servers' certificates have in these tests.
pub const SERVER_NAME: &str = "weir.test";

/// A TLS client.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: ClientConfig,
}

impl TlsClient {
    /// A client for HTTP/2 that trusts an authority, and shows a certificate if it has one.
    pub fn new(trusted: &Authority, identity: Option<&Identity>) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => config.with_no_client_auth(),
            Some(Identity { cert, key }) => {
                let chain = CertificateDer::pem_slice_iter(cert.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
        };
        config.alpn_protocols = vec!["h2".into()];
        TlsClient { config }
    }

    /// Offers these protocols instead of HTTP/2.
    pub fn offering(mut self, protocols: &[&str]) -> TlsClient {
        self.config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        self
    }

    pub async fn connect(&self, to: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(to).await?;
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let connecting = TlsConnector::from(Arc::new(self.config.clone())).connect(name, socket);
        timeout(PATIENCE, connecting).await.expect("an answer in time")
    }

    /// Opens a connection for several requests.
    pub async fn open(&self, to: SocketAddr) -> SendRequest<Bytes> {
        let stream = self.connect(to).await.expect("a connection");
        let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        client.ready().await.expect("HTTP/2")
    }

    /// Sends a request of this user on a connection of its own. Returns its gRPC status.
    pub async fn ask(&self, to: SocketAddr, user: &str) -> Result<String, String> {
        let stream = self.connect(to).await.map_err(|error| error.to_string())?;
        // The server may refuse the client's certificate only after the client's handshake.
        let asked = async {
            let (mut client, connection) = h2::client::handshake(stream).await?;
            let connection = tokio::spawn(connection);
            let answer = send(&mut client, head(), &[framed_request(user)]).await;
            if answer.is_err() {
                // It knows more than its stream.
                connection.await.expect("no panic")?;
            }
            answer
        };
        let answer = timeout(PATIENCE, asked).await.expect("an answer in time");
        let answer = answer.map_err(|error: h2::Error| error.to_string())?;
        answer.status.ok_or_else(|| "no status".to_owned())
    }
}
