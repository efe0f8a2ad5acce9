//! What one connection may take of its thread's time.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::outbound::Outbound;
use super::read_scheduler::ReadTurn;

/// Reads a little at a time, and nothing while what was answered cannot be sent: who asks without
/// end and does not read is held back by TCP, and the others of its thread do not wait for it.
#[derive(Debug)]
pub(super) struct ThrottledIo<T> {
    io: T,
    turn: Arc<ReadTurn>,
    outbound: Arc<Outbound>,
    /// Whether somebody wanted to read while the other side took no more.
    wanted: bool,
}

impl<T> ThrottledIo<T> {
    pub fn new(io: T, turn: Arc<ReadTurn>, outbound: Arc<Outbound>) -> ThrottledIo<T> {
        ThrottledIo { io, turn, outbound, wanted: false }
    }

    fn wrote<R>(&mut self, cx: &Context<'_>, written: &Poll<R>) {
        self.outbound.set_blocked(written.is_pending());
        if written.is_ready() && self.wanted {
            self.wanted = false;
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
            self.wanted = true;
            return Poll::Pending;
        }
        let left = self.turn.left();
        if left == 0 {
            self.turn.wait(cx);
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let mut turn = (&mut self.io).take(left as u64);
        let read = Pin::new(&mut turn).poll_read(cx, buf);
        self.turn.took(buf.filled().len() - before);
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
        self.wrote(cx, &written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.wrote(cx, &written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
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
    async fn a_turn_ends_though_there_is_more_to_read() {
        let (mut client, server) = duplex(4 * TURN_BYTES);
        let turn = ReadScheduler::default().new_turn();
        let mut server = ThrottledIo::new(server, turn.clone(), Arc::default());
        client.write_all(&[7; 3 * TURN_BYTES]).await.unwrap();
        let mut taken = [0; TURN_BYTES];
        assert_eq!(now_or_never(server.read(&mut taken)).unwrap().unwrap(), TURN_BYTES);
        assert!(now_or_never(server.read(&mut taken)).is_none(), "the others' turn");
        assert!(now_or_never(server.read(&mut taken)).is_none(), "however often it is asked");
        turn.begin();
        assert!(now_or_never(server.read(&mut taken)).is_none(), "it is not called yet");
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        turn.begin();
        assert_eq!(now_or_never(server.read(&mut taken)).unwrap().unwrap(), RESUMED_TURN_BYTES);
        // Awaited, it is called.
        let mut rest = pin!(server.read(&mut taken));
        let mut polled = false;
        let rest = std::future::poll_fn(|cx| {
            if std::mem::replace(&mut polled, true) {
                turn.begin();
            }
            rest.as_mut().poll(cx)
        });
        assert_eq!(rest.await.unwrap(), RESUMED_TURN_BYTES);
    }

    #[tokio::test]
    async fn nothing_is_read_from_who_does_not_read() {
        let (mut client, server) = duplex(64);
        let mut server =
            ThrottledIo::new(server, ReadScheduler::default().new_turn(), Arc::default());
        client.write_all(b"more").await.unwrap();
        assert!(now_or_never(server.write_all(&[7; 65])).is_none());
        let mut taken = [0; 64];
        assert!(now_or_never(server.read(&mut taken)).is_none());
        // Once it has read, and the rest is sent, what it said is taken.
        client.read_exact(&mut [0; 64]).await.unwrap();
        server.write_all(&[7]).await.unwrap();
        assert_eq!(server.read(&mut taken).await.unwrap(), 4);
    }
}
