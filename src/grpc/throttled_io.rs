//! A socket that is read only in its connection's turn, and only while the client reads.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::outbound::Outbound;
use super::read_scheduler::ReadTurn;

/// Reads a bounded number of bytes per turn, and nothing while responses cannot be written: TCP's
/// flow control then stops a client that sends continuously, or does not read, before the other
/// connections of its thread have to wait.
#[derive(Debug)]
pub(super) struct ThrottledIo<T> {
    io: T,
    turn: Arc<ReadTurn>,
    outbound: Arc<Outbound>,
    /// Whether a read was refused because writing was blocked.
    read_is_deferred: bool,
}

impl<T> ThrottledIo<T> {
    pub fn new(io: T, turn: Arc<ReadTurn>, outbound: Arc<Outbound>) -> ThrottledIo<T> {
        ThrottledIo { io, turn, outbound, read_is_deferred: false }
    }

    fn after_write<R>(&mut self, cx: &Context<'_>, written: &Poll<R>) {
        self.outbound.set_blocked(written.is_pending());
        if written.is_ready() && self.read_is_deferred {
            self.read_is_deferred = false;
            cx.waker().wake_by_ref();
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ThrottledIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.outbound.is_blocked() {
            self.read_is_deferred = true;
            return Poll::Pending;
        }
        let remaining = self.turn.remaining();
        if remaining == 0 {
            self.turn.wait(cx);
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let mut limited = (&mut self.io).take(remaining as u64);
        let read = Pin::new(&mut limited).poll_read(cx, buf);
        self.turn.consume(buf.filled().len() - before);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ThrottledIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.after_write(cx, &written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.after_write(cx, &written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS, what the socket does not take is noticed here.
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.after_write(cx, &flushed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::read_scheduler::{RESUMED_TURN_BYTES, ReadScheduler, TURN_BYTES};
    use std::future::Future;
    use std::pin::pin;
    use tokio::io::{AsyncWriteExt, duplex};

    fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_turn_ends_while_there_is_more_to_read() {
        let (mut client, server) = duplex(4 * TURN_BYTES);
        let turn = ReadScheduler::default().new_turn();
        let mut server = ThrottledIo::new(server, turn.clone(), Arc::default());
        client.write_all(&[7; 3 * TURN_BYTES]).await.unwrap();
        let mut received = [0; TURN_BYTES];
        assert_eq!(now_or_never(server.read(&mut received)).unwrap().unwrap(), TURN_BYTES);
        assert!(now_or_never(server.read(&mut received)).is_none(), "the turn is used up");
        assert!(now_or_never(server.read(&mut received)).is_none(), "however often it is polled");
        turn.start_poll();
        assert!(now_or_never(server.read(&mut received)).is_none(), "the next is not granted yet");
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        turn.start_poll();
        assert_eq!(now_or_never(server.read(&mut received)).unwrap().unwrap(), RESUMED_TURN_BYTES);
        // The grant wakes the task.
        let mut rest = pin!(server.read(&mut received));
        let mut polled = false;
        let rest = std::future::poll_fn(|cx| {
            if std::mem::replace(&mut polled, true) {
                turn.start_poll();
            }
            rest.as_mut().poll(cx)
        });
        assert_eq!(rest.await.unwrap(), RESUMED_TURN_BYTES);
    }

    #[tokio::test]
    async fn nothing_is_read_from_a_client_that_does_not_read() {
        let (mut client, server) = duplex(64);
        let mut server =
            ThrottledIo::new(server, ReadScheduler::default().new_turn(), Arc::default());
        client.write_all(b"more").await.unwrap();
        assert!(now_or_never(server.write_all(&[7; 65])).is_none());
        let mut received = [0; 64];
        assert!(now_or_never(server.read(&mut received)).is_none());
        // It is read from again once it has read and the rest is written.
        client.read_exact(&mut [0; 64]).await.unwrap();
        server.write_all(&[7]).await.unwrap();
        assert_eq!(server.read(&mut received).await.unwrap(), 4);
    }
}
