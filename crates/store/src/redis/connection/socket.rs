//! The socket of a connection: TCP, TLS or a Unix socket.

use std::io;
use std::pin::Pin;

use futures_util::future::select_ok;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::error::ConnectError;
use crate::redis::access::{Access, Endpoint, Tls};
use weir_common::client_tls::{ClientTls, ClientTlsError};

/// What can be read and written.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

pub(super) type Socket = Pin<Box<dyn Stream>>;

/// Connects to a server.
///
/// # Errors
///
/// It cannot be reached, or it is not to be trusted.
pub(super) async fn open(access: &Access, endpoint: &Endpoint) -> Result<Socket, ConnectError> {
    match (endpoint, &access.tls) {
        (Endpoint::Unix(path), _) => Ok(Box::pin(UnixStream::connect(path).await.map_err(redis)?)),
        (Endpoint::Tcp(host, port), None) => {
            Ok(Box::pin(connect(host, *port).await.map_err(redis)?))
        }
        (Endpoint::Tcp(host, port), Some(tls)) => encrypted(tls, host, *port).await,
    }
}

/// Connects to the first address of a host that answers.
async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await?;
    let attempts: Vec<_> = addresses.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if attempts.is_empty() {
        return Err(io::Error::other(format!("{host} has no address")));
    }
    let (stream, _) = select_ok(attempts).await?;
    // Packets are small, and requests wait for them.
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn encrypted(tls: &Tls, host: &str, port: u16) -> Result<Socket, ConnectError> {
    let pem = tls.certificates.read_in_background().await;
    let pem = pem.map_err(|error| ConnectError::Certificates(error.to_string()))?;
    let client = ClientTls::new(&pem, host, tls.skip_hostname_verification);
    let client = client.map_err(|error| match error {
        ClientTlsError::Name(_) => redis(io::Error::other(error)),
        ClientTlsError::Certificates(error) => ConnectError::Certificates(error),
    })?;
    let stream = connect(host, port).await.map_err(redis)?;
    Ok(Box::pin(client.connect(stream).await.map_err(redis)?))
}

fn redis(error: io::Error) -> ConnectError {
    ConnectError::Redis(error.into())
}
