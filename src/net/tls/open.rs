//! Opening an accepted connection, with or without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Handshakes, TlsStream};
use crate::net::{ConnectionHandle, Socket};

/// Opens the connections of one listener.
#[derive(Clone, Debug)]
pub struct Opener {
    /// What does handshakes; none without TLS.
    pub handshakes: Option<Arc<Handshakes>>,
    /// The timeout of waiting for a client to start its handshake, and of the handshake.
    pub timeout: Duration,
}

/// A connection on which requests can be read.
#[derive(Debug)]
pub enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream>),
}

impl Opener {
    /// Does the handshake, if there is one. None if it fails, takes too long, the connection is
    /// evicted, or `shutdown` turns true before the client has sent anything.
    pub async fn open(
        &self,
        socket: Socket,
        handle: &Arc<ConnectionHandle>,
        shutdown: &mut watch::Receiver<bool>,
    ) -> Option<Stream> {
        let Some(handshakes) = &self.handshakes else { return Some(Stream::Plain(socket)) };
        let handshake = async {
            // A client that sends nothing costs only its connection, one that disconnects not even that.
            tokio::select! {
                biased;
                is_open = socket.readable() => is_open.ok()?.then_some(())?,
                _ = shutdown.wait_for(|shutdown| *shutdown) => return None,
            }
            handle.set_greeted();
            handshakes.run(socket, handle.clone()).await
        };
        tokio::select! {
            biased;
            stream = timeout(self.timeout, handshake) => stream.ok().flatten(),
            () = handle.evicted() => None,
        }
        .map(|stream| Stream::Tls(Box::new(stream)))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}
