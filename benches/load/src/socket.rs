//! A connection to a server: TCP, TLS or a unix socket.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The authority that the client sends.
pub fn authority(addr: &str) -> &str {
    match addr.strip_prefix("unix:") {
        Some(_) => "localhost",
        None => addr.trim_start_matches("http://").trim_end_matches('/'),
    }
}

/// How to connect by TLS.
pub struct TlsClient {
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// Trusts the certificates of a PEM file. Sessions are not resumed, so that each connection costs a
    /// full handshake.
    pub fn new(ca: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca)? {
            roots.add(certificate?)?;
        }
        let mut config =
            ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config) })
    }

    fn connect(&self, host: &str, stream: TcpStream) -> Result<Socket> {
        let name = ServerName::try_from(host.to_owned())?;
        let client = ClientConnection::new(self.config.clone(), name)?;
        let mut stream = StreamOwned::new(client, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Socket::Tls(Box::new(stream)))
    }
}

pub enum Socket {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

impl Socket {
    /// `http://host:port`, `host:port` or `unix:/path`.
    pub fn open(addr: &str, tls: Option<&TlsClient>) -> Result<Self> {
        if let Some(path) = addr.strip_prefix("unix:") {
            let stream = UnixStream::connect(path).with_context(|| format!("connect {addr}"))?;
            return Ok(Self::Unix(stream));
        }
        let target = authority(addr);
        let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
        let address =
            target.to_socket_addrs()?.next().with_context(|| format!("resolve {target}"))?;
        let stream = TcpStream::connect(address).with_context(|| format!("connect {target}"))?;
        stream.set_nodelay(true)?;
        match tls {
            Some(tls) => tls.connect(host, stream).with_context(|| format!("TLS with {target}")),
            None => Ok(Self::Tcp(stream)),
        }
    }

    pub fn set_nonblocking(&self) -> std::io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_nonblocking(true),
            Self::Tls(s) => s.sock.set_nonblocking(true),
            Self::Unix(s) => s.set_nonblocking(true),
        }
    }

    /// Returns whether encrypted bytes wait to be written.
    pub fn wants_write(&self) -> bool {
        match self {
            Self::Tls(s) => s.conn.wants_write(),
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }

    pub fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(buf),
            Self::Tls(s) => s.read(buf),
            Self::Unix(s) => s.read(buf),
        }
    }

    pub fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(buf),
            Self::Tls(s) => s.write(buf),
            Self::Unix(s) => s.write(buf),
        }
    }

    /// Writes what is encrypted already.
    pub fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Tls(s) => s.flush(),
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Tls(s) => s.sock.as_fd(),
            Self::Unix(s) => s.as_fd(),
        }
    }
}
