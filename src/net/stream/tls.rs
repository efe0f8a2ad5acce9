//! The server's side of a TLS connection, from the handshake on: rustls over an asynchronous socket.
//!
//! It buffers little: the unread part of a record (16 KiB), and the part of a write that the socket does not take yet.

use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::server::ServerConnectionData;
use rustls::{ConnectionCommon, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most encrypted bytes that wait for the socket.
const WRITE_BUFFER_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub struct TlsStream<S> {
    pub(super) socket: S,
    session: Box<ServerConnection>,
    /// Whether the next read has to let other connections go first.
    must_yield: bool,
    /// Whether the close_notify alert was queued: nothing more will be written.
    is_shut_down: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Returns a connection before its handshake, or one that `into_parts` took apart.
    pub fn new(socket: S, mut session: Box<ServerConnection>) -> TlsStream<S> {
        session.set_buffer_limit(Some(WRITE_BUFFER_BYTES));
        TlsStream { socket, session, must_yield: false, is_shut_down: false }
    }

    pub(super) fn into_parts(self) -> (S, Box<ServerConnection>) {
        (self.socket, self.session)
    }

    /// Takes one step of the handshake: sends what is to be sent, and reads and processes what has
    /// arrived. Returns whether the handshake is complete.
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        ready!(self.poll_send(cx))?;
        if !self.session.is_handshaking() {
            return Poll::Ready(Ok(true));
        }
        if ready!(self.poll_receive(cx))? == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        Poll::Ready(Ok(false))
    }

    /// Sends everything that is encrypted.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut socket = BlockingIo { socket: &mut self.socket, cx };
            match self.session.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from the socket once, and decrypts. Returns the number of bytes read.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut socket = BlockingIo { socket: &mut self.socket, cx };
        let bytes = match self.session.read_tls(&mut socket) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let processed = self.session.process_new_packets();
        if processed.is_err() || self.session.wants_write() {
            // An alert, or a new key. If the socket does not take it, the next write sends it.
            let _ = self.poll_send(cx);
        }
        match processed {
            Ok(_) => Poll::Ready(Ok(bytes)),
            Err(error) => Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error))),
        }
    }

    /// Moves what is decrypted to `buf`. Returns false if nothing is.
    fn take_plaintext(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<bool> {
        let before = buf.filled().len();
        while buf.remaining() > 0 {
            let chunk = match self.session.reader().into_first_chunk() {
                // The client has closed the connection.
                Ok([]) => return Ok(true),
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Without the closing alert of TLS. HTTP/2 has its own.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
                Err(error) => return Err(error),
            };
            let bytes = chunk.len().min(buf.remaining());
            buf.put_slice(&chunk[..bytes]);
            io::BufRead::consume(&mut self.session.reader(), bytes);
        }
        Ok(buf.filled().len() > before)
    }

    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut ConnectionCommon<ServerConnectionData>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        // Nothing more is encrypted while the client does not read.
        ready!(self.poll_send(cx))?;
        let bytes = write(&mut self.session)?;
        match self.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // The rest is sent when it is flushed.
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(bytes)),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 || this.take_plaintext(buf)? {
            return Poll::Ready(Ok(()));
        }
        if std::mem::take(&mut this.must_yield) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let received = ready!(this.poll_receive(cx))?;
        let before = buf.filled().len();
        let has_plaintext = this.take_plaintext(buf)?;
        // Tiny records, or records without data, cost far more than their data: one read at a time.
        this.must_yield = (buf.filled().len() - before) * 4 < received;
        if has_plaintext || received == 0 {
            return Poll::Ready(Ok(()));
        }
        this.must_yield = false;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_with(cx, |session| session.writer().write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_with(cx, |session| session.writer().write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.is_shut_down, true) {
            this.session.send_close_notify();
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}

/// A socket as rustls uses it: what is not ready yet is an error.
struct BlockingIo<'a, 'c, 'w, S> {
    socket: &'a mut S,
    cx: &'c mut Context<'w>,
}

fn or_would_block<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl<S: AsyncRead + Unpin> Read for BlockingIo<'_, '_, '_, S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(buf);
        or_would_block(Pin::new(&mut *self.socket).poll_read(self.cx, &mut buf))?;
        Ok(buf.filled().len())
    }
}

impl<S: AsyncWrite + Unpin> Write for BlockingIo<'_, '_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.socket).poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.socket).poll_write_vectored(self.cx, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
