//! The connection of a client: TCP or a Unix socket, plain or with TLS; and the deadline of writing to it.

mod tls;

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_send_buffer_size, set_tcp_keepcnt, set_tcp_keepidle,
    set_tcp_keepintvl, socket_error,
};
use rustix::net::{RecvFlags, recv};
use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};

pub use self::tls::TlsStream;

/// The size of a socket's send buffer. By default the system lets it grow to megabytes for a client
/// that does not read.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// A connection that is registered with the current tokio runtime.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<Stream>>),
}

/// A connection on its way from one thread's runtime to another's: from the accepting thread to the one that serves it.
#[derive(Debug)]
pub enum DetachedStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
    Tls(Box<DetachedTls>),
}

#[derive(Debug)]
pub struct DetachedTls {
    socket: DetachedStream,
    session: Box<ServerConnection>,
}

impl Stream {
    /// Closes the connection if the other host has not answered for this long, even when nothing is sent.
    pub fn keep_alive(&self, time: Duration) -> io::Result<()> {
        /// Probes without an answer before the connection is closed.
        const PROBES: u32 = 3;
        if let Stream::Tcp(socket) = self {
            set_socket_keepalive(socket, true)?;
            set_tcp_keepidle(socket, time / 2)?;
            set_tcp_keepintvl(socket, time / 2 / PROBES)?;
            set_tcp_keepcnt(socket, PROBES)?;
        }
        Ok(())
    }

    /// Turns Nagle's algorithm off, and bounds the send buffer.
    pub fn prepare(&self) -> io::Result<()> {
        if let Stream::Tcp(socket) = self {
            socket.set_nodelay(true)?;
        }
        Ok(set_socket_send_buffer_size(self.as_fd(), SEND_BUFFER_BYTES)?)
    }

    /// Returns the address of the client, in its own family; none over a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(socket) => socket.peer_addr().ok().map(to_canonical),
            Stream::Unix(_) => None,
            Stream::Tls(stream) => stream.socket.peer(),
        }
    }

    /// Returns the address that the client connected to; none over a Unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(socket) => socket.local_addr().ok().map(to_canonical),
            Stream::Unix(_) => None,
            Stream::Tls(stream) => stream.socket.local(),
        }
    }

    /// Waits until there is something to read, or the client has closed the connection. Returns whether there is
    /// something to read, and the client has not reset the connection.
    pub async fn readable(&self) -> io::Result<bool> {
        // A new socket counts as readable until reading has shown that it is not.
        loop {
            let read = match self {
                Stream::Tcp(socket) => {
                    socket.readable().await?;
                    socket.try_io(Interest::READABLE, || peek(socket.as_fd()))
                }
                Stream::Unix(socket) => {
                    socket.readable().await?;
                    socket.try_io(Interest::READABLE, || peek(socket.as_fd()))
                }
                // Its handshake is complete.
                Stream::Tls(_) => return Ok(true),
            };
            if !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
        }
        Ok(!is_closed(self.as_fd()))
    }

    /// Waits for the first bytes, and copies those that have arrived. Returns their number, 0 if the client has closed
    /// the connection.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.readable().await?;
        let (length, _) = recv(self.as_fd(), bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
        Ok(length)
    }

    /// Takes the connection out of the current runtime.
    pub fn detach(self) -> io::Result<DetachedStream> {
        Ok(match self {
            Stream::Tcp(socket) => DetachedStream::Tcp(socket.into_std()?),
            Stream::Unix(socket) => DetachedStream::Unix(socket.into_std()?),
            Stream::Tls(stream) => {
                let (socket, session) = stream.into_parts();
                DetachedStream::Tls(Box::new(DetachedTls { socket: socket.detach()?, session }))
            }
        })
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(socket) => socket.as_fd(),
            Stream::Unix(socket) => socket.as_fd(),
            Stream::Tls(stream) => stream.socket.as_fd(),
        }
    }
}

impl DetachedStream {
    pub fn is_closed(&self) -> bool {
        match self {
            DetachedStream::Tcp(socket) => is_closed(socket.as_fd()),
            DetachedStream::Unix(socket) => is_closed(socket.as_fd()),
            DetachedStream::Tls(stream) => stream.socket.is_closed(),
        }
    }

    /// Registers it with the current runtime.
    pub fn attach(self) -> io::Result<Stream> {
        Ok(match self {
            DetachedStream::Tcp(socket) => Stream::Tcp(TcpStream::from_std(socket)?),
            DetachedStream::Unix(socket) => Stream::Unix(UnixStream::from_std(socket)?),
            DetachedStream::Tls(stream) => {
                let DetachedTls { socket, session } = *stream;
                Stream::Tls(Box::new(TlsStream::new(socket.attach()?, session)))
            }
        })
    }
}

/// Returns an IPv4 address as such: a socket of both families maps those of its clients into IPv6.
pub fn to_canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Returns whether the peer has reset the connection, or closed it and everything it has sent is read.
fn is_closed(fd: BorrowedFd<'_>) -> bool {
    // What arrived before a reset can still be read.
    let is_reset = !matches!(socket_error(fd), Ok(Ok(())));
    let is_ended = match peek(fd) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    is_reset || is_ended
}

/// Reads a byte that stays to be read.
fn peek(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let (length, _) = recv(fd, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
    Ok(length)
}

/// Does the same with the socket of each kind.
macro_rules! each {
    ($stream:expr, $socket:ident => $does:expr) => {
        match $stream {
            Stream::Tcp($socket) => $does,
            Stream::Unix($socket) => $does,
            Stream::Tls($socket) => $does,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), socket => Pin::new(socket).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), socket => Pin::new(socket).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), socket => Pin::new(socket).poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // Nothing is buffered.
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), socket => Pin::new(socket).poll_shutdown(cx))
    }
}

/// The deadline of a client to read what is written. It runs from the first write that is blocked until everything is
/// written, however steadily the client reads a little.
#[derive(Debug)]
pub struct WriteDeadline {
    timeout: Duration,
    running: Option<Pin<Box<Sleep>>>,
}

impl WriteDeadline {
    pub fn new(timeout: Duration) -> WriteDeadline {
        WriteDeadline { timeout, running: None }
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Ready once a write has been blocked for too long; to be called while one is.
    pub fn poll_passed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timeout = self.timeout;
        self.running.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx)
    }

    /// Ends the deadline: everything is written.
    pub fn clear(&mut self) {
        self.running = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    fn pair() -> (TcpStream, DetachedStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, DetachedStream::Tcp(server))
    }

    /// Waits until the kernel has delivered what the client did.
    async fn becomes_closed(socket: &DetachedStream) -> bool {
        for _ in 0..1_000 {
            if socket.is_closed() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    #[tokio::test]
    async fn a_silent_socket_is_waited_for() {
        let (mut client, socket) = pair();
        let socket = socket.attach().unwrap();
        let mut readable = pin!(socket.readable());
        for _ in 0..10 {
            assert!(readable.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        client.write_all(b"hello").unwrap();
        assert!(readable.await.unwrap());
    }

    #[tokio::test]
    async fn a_socket_that_was_reset_has_nothing_to_read() {
        let readable = async |client: TcpStream, socket: DetachedStream| {
            let socket = socket.attach().unwrap();
            let readable = tokio::join!(socket.readable(), async { drop(client) }).0;
            readable.unwrap()
        };
        let (client, socket) = pair();
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        assert!(!readable(client, socket).await);
        let (client, socket) = pair();
        assert!(!readable(client, socket).await);
        let (mut client, socket) = pair();
        client.write_all(b"hello").unwrap();
        assert!(readable(client, socket).await);
    }

    #[tokio::test]
    async fn sockets_of_clients_that_are_gone_are_closed() {
        let (client, silent) = pair();
        let (mut sender, sent) = pair();
        sender.write_all(b"hello").unwrap();
        assert!(!silent.is_closed() && !sent.is_closed());
        drop(client);
        assert!(becomes_closed(&silent).await);
        // It can still be answered: it may have closed only its sending half.
        drop(sender);
        assert!(!sent.is_closed());
        let (mut client, reset) = pair();
        client.write_all(b"hello").unwrap();
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        assert!(becomes_closed(&reset).await, "although there is something to read");
    }
}
