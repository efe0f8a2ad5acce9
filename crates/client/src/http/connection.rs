//! Opens the connections of HTTP clients: looks up the host, and connects over TCP and TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

use super::target::Target;
use crate::tls::ClientCertificates;
use crate::tls::config::{ClientTls, ClientTlsError};
use weir_common::error::with_causes;

const MAX_HEAD_BYTES: usize = 16 << 10;

pub type Body = Full<Bytes>;

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{0}")]
    Certificates(String),
    #[error("{}", with_causes(.0))]
    Connect(#[from] io::Error),
    #[error("{}", with_causes(.0))]
    Http(#[from] hyper::Error),
}

/// The bytes of a connection, with or without TLS.
pub trait ClientStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ClientStream for S {}

/// Connects. Certificate files are read again before. `for_http2` requires that a server with TLS chooses HTTP/2.
pub async fn connect(
    target: &Target,
    certificates: &Arc<ClientCertificates>,
    for_http2: bool,
) -> Result<Box<dyn ClientStream>, HttpError> {
    if !target.is_tls {
        return Ok(Box::new(connect_tcp(target).await?));
    }
    let pem = certificates.read_in_background().await;
    let pem = pem.map_err(|error| HttpError::Certificates(error.to_string()))?;
    let tls = ClientTls::new(&pem, &target.host, false);
    let mut tls = tls.map_err(|error| match error {
        ClientTlsError::Name(_) => HttpError::Connect(io::Error::other(error)),
        ClientTlsError::Certificates(error) => HttpError::Certificates(error),
    })?;
    if for_http2 {
        tls = tls.with_http2();
    }
    Ok(Box::new(tls.connect(connect_tcp(target).await?).await?))
}

async fn connect_tcp(target: &Target) -> io::Result<TcpStream> {
    let addresses = resolve(&target.host, target.port).await?;
    let stream = TcpStream::connect(&*addresses).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection of HTTP/1, which is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<Body>,
    /// The task that reads and writes. Dropping ends it: one whose server sends continuously would not end by itself.
    _task: JoinSet<()>,
}

impl Connection {
    pub(super) async fn open(
        target: &Target,
        certificates: &Arc<ClientCertificates>,
    ) -> Result<Connection, HttpError> {
        let stream = connect(target, certificates, false).await?;
        let mut builder = Builder::new();
        builder.max_buf_size(MAX_HEAD_BYTES);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let mut task = JoinSet::new();
        // Its errors are also those of its requests.
        task.spawn(async { drop(connection.await) });
        Ok(Connection { sender, _task: task })
    }
}

/// Returns the addresses of a host, in the order to try them. Those of `localhost` are of both families, even if the
/// system knows one only: a server may listen on either.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = lookup_host((host, port)).await.map(Iterator::collect);
    if !host.eq_ignore_ascii_case("localhost") {
        return found;
    }
    let mut addresses: Vec<SocketAddr> = found.unwrap_or_default();
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        if !addresses.iter().any(|address| address.ip() == ip) {
            // Before the others: the last error is reported, and that of a family which the system lacks says nothing.
            addresses.insert(0, (ip, port).into());
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn localhost_is_of_both_families_and_other_hosts_are_as_they_are() {
        for name in ["localhost", "LOCALHOST"] {
            let addresses = resolve(name, 5).await.unwrap();
            for wanted in ["127.0.0.1:5", "[::1]:5"] {
                let is_wanted = |address: &&SocketAddr| address.to_string() == wanted;
                assert_eq!(addresses.iter().filter(is_wanted).count(), 1, "{addresses:?}");
            }
        }
        assert_eq!(resolve("127.0.0.1", 5).await.unwrap(), ["127.0.0.1:5".parse().unwrap()]);
        assert_eq!(resolve("::1", 5).await.unwrap(), ["[::1]:5".parse().unwrap()]);
    }
}
