//! Binds the sockets of all listeners when the service is built. Each listens later, when its clients can be served.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use anyhow::Context;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixStream, lookup_host};

use super::stream::to_canonical;

/// Connections that may wait to be accepted, also limited by somaxconn. Beyond it, clients retry only after a second.
const BACKLOG: i32 = 4_096;

/// A bound socket that is not registered with a runtime yet. Until it listens, the system refuses connections to it.
#[derive(Debug)]
pub enum BoundSocket {
    Tcp {
        socket: Socket,
        /// The host as configured; empty for all addresses.
        host: String,
    },
    Unix(Socket, UnixSocketFile),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The host as configured, and the port, which the system chose if it is configured as 0.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

impl BoundSocket {
    pub fn address(&self) -> io::Result<Address> {
        Ok(match self {
            BoundSocket::Tcp { socket, host } => {
                let address = socket.local_addr()?.as_socket();
                let port = address.map(|address| address.port()).unwrap_or_default();
                Address::Tcp { host: host.clone(), port }
            }
            BoundSocket::Unix(_, file) => Address::Unix(file.path.clone()),
        })
    }

    /// Listens. Of two processes that have bound one port, only the first can.
    pub fn listen(&self) -> anyhow::Result<()> {
        let (BoundSocket::Tcp { socket, .. } | BoundSocket::Unix(socket, _)) = self;
        socket.listen(BACKLOG).with_context(|| match self.address() {
            Ok(address) => format!("cannot listen on {address}: stop what has taken it"),
            Err(error) => format!("cannot listen: {error}"),
        })
    }

    /// Binds a Unix socket. Replaces the file of a socket on which no process accepts.
    async fn unix(path: &Path) -> io::Result<BoundSocket> {
        let other = |message: &str| Err(io::Error::other(message.to_owned()));
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return other("the file exists and is not a socket");
            }
            Ok(_) => match UnixStream::connect(path).await.map_err(|error| error.kind()) {
                Err(io::ErrorKind::ConnectionRefused) => std::fs::remove_file(path)?,
                // It does not accept now.
                Ok(_) | Err(io::ErrorKind::WouldBlock) => {
                    return other("another process listens on it");
                }
                Err(error) => return Err(error.into()),
            },
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = UnixSocketFile { path: path.to_owned(), id: id(path) };
        socket.set_nonblocking(true)?;
        Ok(BoundSocket::Unix(socket, file))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The file of a Unix socket, removed when this is dropped.
#[derive(Debug)]
pub struct UnixSocketFile {
    path: PathBuf,
    /// The file's device and inode: another process may have replaced it.
    id: Option<(u64, u64)>,
}

impl Drop for UnixSocketFile {
    fn drop(&mut self) {
        if self.id.is_some() && self.id == id(&self.path) {
            // If this fails, the next start replaces the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn id(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Binds `address`, the value of `setting`, which errors name.
pub async fn bind(address: &str, setting: &str) -> anyhow::Result<BoundSocket> {
    let socket = match address.strip_prefix(':').and_then(|port| port.parse().ok()) {
        Some(port) => on_all(port, bind_to),
        None => on_any_of(address).await,
    };
    let socket = socket.with_context(|| {
        format!("cannot listen on {address} ({setting}): choose another address or port")
    })?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
    Ok(BoundSocket::Tcp { socket, host })
}

/// Binds the Unix socket `path`, the value of `setting`, which errors name.
pub async fn bind_path(path: &Path, setting: &str) -> anyhow::Result<BoundSocket> {
    BoundSocket::unix(path).await.with_context(|| {
        format!(
            "cannot listen on {} ({setting}): choose another path in a directory that weir may \
             write to",
            path.display()
        )
    })
}

/// Binds the first of the host's addresses that can be bound.
async fn on_any_of(address: &str) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the host has no address");
    for address in lookup_host(address).await? {
        match bind_to(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Binds all addresses of IPv6 and IPv4, or of IPv4 alone if the system has no IPv6.
fn on_all<T>(port: u16, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    use io::ErrorKind::{AddrInUse, PermissionDenied};
    match bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        // A port that is in use or not permitted would be so over IPv4, too.
        Err(error) if !matches!(error.kind(), AddrInUse | PermissionDenied) => {
            bind((Ipv4Addr::UNSPECIFIED, port).into())
        }
        bound => bound,
    }
}

/// Binds an address; `[::]` over IPv4 too.
fn bind_to(address: SocketAddr) -> io::Result<Socket> {
    let address = to_canonical(address);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // The system's default (net.ipv6.bindv6only) must not decide.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{IpAddr, TcpStream};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::net::Listener;

    async fn bound(address: &str) -> (BoundSocket, u16) {
        let bound = bind(address, "grpc.address").await.unwrap();
        match bound.address().unwrap() {
            Address::Tcp { port, .. } => (bound, port),
            Address::Unix(path) => panic!("{path:?}"),
        }
    }

    /// Returns whether this machine has IPv6.
    fn has_ipv6() -> bool {
        let has = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        if !has {
            eprintln!("skipped: this machine has no IPv6");
        }
        has
    }

    #[tokio::test]
    async fn clients_of_both_families_are_known_by_their_own_addresses() {
        for address in [":0", "[::]:0"] {
            if !has_ipv6() {
                return;
            }
            let (socket, port) = bound(address).await;
            socket.listen().unwrap();
            let listener = Listener::attach(socket).unwrap();
            for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
                let client = TcpStream::connect((ip, port)).unwrap();
                let accepted = listener.accept().await.unwrap();
                assert_eq!(accepted.peer(), Some(client.local_addr().unwrap()), "{address}");
            }
        }
    }

    #[tokio::test]
    async fn hosts_are_of_one_family_and_shown_as_configured() {
        for (address, other) in [
            ("0.0.0.0:0", IpAddr::from(Ipv6Addr::LOCALHOST)),
            ("127.0.0.1:0", Ipv6Addr::LOCALHOST.into()),
            ("[::ffff:127.0.0.1]:0", Ipv6Addr::LOCALHOST.into()),
            ("[::1]:0", Ipv4Addr::LOCALHOST.into()),
        ] {
            if address.starts_with("[::1]") && !has_ipv6() {
                continue;
            }
            let (socket, port) = bound(address).await;
            socket.listen().unwrap();
            assert!(TcpStream::connect((other, port)).is_err(), "{address}");
            let host = address.trim_end_matches('0');
            assert_eq!(socket.address().unwrap().to_string(), format!("{host}{port}"));
        }
        let (socket, port) = bound("localhost:0").await;
        assert_eq!(socket.address().unwrap().to_string(), format!("localhost:{port}"));
        let (socket, port) = bound(":0").await;
        assert_eq!(socket.address().unwrap().to_string(), format!(":{port}"));
    }

    #[test]
    fn without_ipv6_all_addresses_are_those_of_ipv4() {
        let bound = |kind| {
            on_all(80, |address| match address {
                SocketAddr::V4(_) => Ok(address.to_string()),
                SocketAddr::V6(_) => Err(io::Error::from(kind)),
            })
        };
        for off in [ErrorKind::Unsupported, ErrorKind::AddrNotAvailable, ErrorKind::Other] {
            assert_eq!(bound(off).unwrap(), "0.0.0.0:80");
        }
        // With IPv6, a part of the addresses must not be served silently.
        for failed in [ErrorKind::AddrInUse, ErrorKind::PermissionDenied] {
            assert_eq!(bound(failed).unwrap_err().kind(), failed);
        }
    }

    #[tokio::test]
    async fn connections_are_refused_until_the_socket_listens() {
        let (socket, port) = bound("127.0.0.1:0").await;
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop);
        assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
        socket.listen().unwrap();
        connect().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        let socket = BoundSocket::unix(&path).await.unwrap();
        let connect = || std::os::unix::net::UnixStream::connect(&path).map(drop);
        assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
        socket.listen().unwrap();
        connect().unwrap();
    }

    #[tokio::test]
    async fn of_two_that_have_bound_a_port_the_second_cannot_listen() {
        let (first, port) = bound("127.0.0.1:0").await;
        let (second, _) = bound(&format!("127.0.0.1:{port}")).await;
        first.listen().unwrap();
        let error = second.listen().unwrap_err().to_string();
        let wanted = format!("cannot listen on 127.0.0.1:{port}: stop what has taken it");
        assert_eq!(error, wanted);
    }

    #[tokio::test]
    async fn only_sockets_without_a_process_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        let first = BoundSocket::unix(&path).await.unwrap();
        first.listen().unwrap();
        let error = BoundSocket::unix(&path).await.unwrap_err().to_string();
        assert_eq!(error, "another process listens on it");
        drop(first);
        assert!(!path.exists(), "removed with the listener");
        // As a process that was killed leaves it.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(BoundSocket::unix(&path).await.unwrap());
        std::fs::write(&path, "precious").unwrap();
        let error = BoundSocket::unix(&path).await.unwrap_err().to_string();
        assert_eq!(error, "the file exists and is not a socket");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn the_file_of_a_successor_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        let first = BoundSocket::unix(&path).await.unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        let second = BoundSocket::unix(&path).await.unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }
}
