//! A socket whose client has to read each response within a deadline.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::{ConnectionHandle, WriteDeadline};

/// Fails a write if the client does not read everything within `timeout`, however steadily it reads
/// a little.
pub(super) struct WriteTimeout<T> {
    inner: T,
    deadline: WriteDeadline,
    handle: Arc<ConnectionHandle>,
}

impl<T> WriteTimeout<T> {
    pub(super) fn new(
        inner: T,
        timeout: Duration,
        handle: Arc<ConnectionHandle>,
    ) -> WriteTimeout<T> {
        WriteTimeout { inner, deadline: WriteDeadline::new(timeout), handle }
    }

    fn check_deadline(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            return written;
        }
        if !self.deadline.is_running() {
            self.handle.set_stalled(true);
        }
        self.deadline.poll_passed(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.check_deadline(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        self.check_deadline(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// hyper flushes when it has written everything.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.deadline.is_running() {
            self.deadline.clear();
            self.handle.set_stalled(false);
        }
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;
    use crate::net::{ConnectionCounts, ConnectionLimits, Connections};

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Returns both ends of a connection that buffers eight bytes.
    fn connection() -> (WriteTimeout<DuplexStream>, DuplexStream) {
        let limits = ConnectionLimits {
            listener: "debug",
            setting: "http.max_connections",
            max: 1,
            overflow: 0,
            min_idle: Duration::ZERO,
        };
        let handle = Arc::new(Connections::new(limits, ConnectionCounts::default()).register());
        let (server, client) = duplex(8);
        (WriteTimeout::new(server, TIMEOUT, handle), client)
    }

    /// Reads a byte a second, for as long as the server writes; at most a hundred.
    async fn read_slowly(client: &mut DuplexStream) {
        for _ in 0..100 {
            sleep(Duration::from_secs(1)).await;
            if client.read_u8().await.is_err() {
                return;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_is_read_as_a_whole_within_the_timeout() {
        let (mut server, mut client) = connection();
        let (written, ()) = tokio::join!(
            async {
                let written = server.write_all(&[0; 100]).await;
                drop(server);
                written
            },
            read_slowly(&mut client),
        );
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
