//! Binds the sockets that clients connect to.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::Context;
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket, lookup_host};

use crate::sockets::BoundSocket;

/// Connections that may wait to be accepted; the system limits it too (somaxconn). Beyond it, clients
/// retry only after a second.
const BACKLOG: u32 = 4_096;

/// Listens on `address`, the value of `setting`.
///
/// # Errors
///
/// The address cannot be resolved or bound; names `setting`.
pub(super) async fn listen(address: &str, setting: &str) -> anyhow::Result<BoundSocket> {
    let listener = match address.strip_prefix(':').and_then(|port| port.parse().ok()) {
        Some(port) => on_all(port),
        None => on_any_of(address).await,
    };
    // The thread that serves it registers it with its own runtime.
    listener.and_then(TcpListener::into_std).map(BoundSocket::Tcp).with_context(|| {
        format!("cannot listen on {address} ({setting}): choose another address or port")
    })
}

/// Listens on the Unix socket `path`, the value of `setting`.
///
/// # Errors
///
/// The socket is in use or cannot be created; names `setting`.
pub(super) async fn listen_on_path(path: &Path, setting: &str) -> anyhow::Result<BoundSocket> {
    BoundSocket::unix(path).await.with_context(|| {
        format!(
            "cannot listen on {} ({setting}): choose another path in a directory that weir may \
             write to",
            path.display()
        )
    })
}

/// Listens on the first of the host's addresses that can be bound.
async fn on_any_of(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the host has no address");
    for address in lookup_host(address).await? {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Listens on all addresses of IPv6 and IPv4, or of IPv4 alone if the system has no IPv6.
fn on_all(port: u16) -> io::Result<TcpListener> {
    match bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        // The port is in use or not permitted: over IPv4 it would be too.
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
            ) =>
        {
            bind((Ipv4Addr::UNSPECIFIED, port).into())
        }
        bound => bound,
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        set_ipv6_v6only(&socket, false)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
