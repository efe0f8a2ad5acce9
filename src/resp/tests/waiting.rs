//! Requests that wait for the store, and clients that do not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::client::Server;
use crate::resp::Limits;
use weir_common::clock::ManualClock;
use weir_limit::SECOND;
use weir_store::conformance::fakes::{Fake, Gated};
use weir_store::memory::MemoryStore;

type Waits = Arc<Gated<Arc<Fake<MemoryStore<Arc<ManualClock>>>>>>;

/// A store that charges at once, and answers only when it is released.
fn waits() -> Waits {
    let clock = Arc::new(ManualClock::new(1_700_000_000 * SECOND));
    let inner = Fake::new(MemoryStore::new(clock, 1_000));
    Arc::new(Gated { inner, release: Semaphore::new(0) })
}

/// A mebibyte for all clients.
fn server(store: &Waits) -> Server<Waits> {
    let timeout = Duration::from_secs(3_600);
    let limits = Limits { timeout, max_request: 16 << 10, max_buffered: 1 << 20 };
    Server::new(store.clone(), limits, None, |resp| resp)
}

/// Returns how many charges wait once no more are made.
async fn charges(store: &Waits) -> usize {
    for _ in 0..10_000 {
        yield_now().await;
    }
    store.inner.charges.load(Ordering::Relaxed)
}

#[tokio::test]
async fn waiting_requests_share_memory_and_each_connection_has_its_own() {
    const CLIENTS: usize = 300;
    const REQUESTS: usize = 200;
    let store = waits();
    let server = server(&store);
    let check = "WEIR.CHECK shop 1 log x\r\n";
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    // Also what needs no store, but waits behind what does.
    let pipeline = format!("{check}PING\r\n").repeat(REQUESTS / 2);
    for client in &mut clients {
        client.write_all(pipeline.as_bytes()).await.unwrap();
    }
    let waiting = charges(&store).await;
    assert!(waiting >= CLIENTS, "{waiting}: each connection has one");
    // Each takes several kilobytes.
    assert!(waiting < CLIENTS + (1 << 20) / 4_096, "{waiting}");
    store.release.add_permits(CLIENTS * REQUESTS);
    for mut client in clients {
        client.shutdown().await.unwrap();
        let mut replies = String::new();
        let read = timeout(Duration::from_secs(60), client.read_to_string(&mut replies));
        read.await.expect("all replies").unwrap();
        assert_eq!(replies.matches("*5\r\n").count(), REQUESTS / 2);
        assert_eq!(replies.matches("+PONG\r\n").count(), REQUESTS / 2);
    }
    assert_eq!(server.stats().memory_refusals.get(), 0);
}

#[tokio::test]
async fn a_pipeline_of_a_hundred_waits_together() {
    let store = waits();
    let clock = Duration::from_secs(3_600);
    let limits = Limits { timeout: clock, max_request: 64 << 10, max_buffered: 16 << 20 };
    let server = Server::new(store.clone(), limits, None, |resp| resp);
    let mut client = server.connect();
    let pipeline = "WEIR.CHECK shop 1 log x\r\n".repeat(100);
    client.write_all(pipeline.as_bytes()).await.unwrap();
    assert_eq!(charges(&store).await, 100);
}

/// A client whose host takes nothing more, after it has sent a request.
struct Stuck(&'static [u8]);

impl AsyncRead for Stuck {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Pending;
        }
        buffer.put_slice(std::mem::take(&mut self.0));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stuck {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    /// With TLS, a closing notice is written first.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_write_failed_costs_one_timeout() {
    let store = waits();
    let timeout = Duration::from_secs(10);
    let limits = Limits { timeout, max_request: 16 << 10, max_buffered: 1 << 20 };
    let server = Server::new(store, limits, None, |resp| resp);
    for sent in [&b"PING\r\n"[..], b"PING\r\nQUIT\r\n", b"PING\r\n*a\r\n"] {
        let start = Instant::now();
        server.serve(Stuck(sent)).await.unwrap();
        assert_eq!(start.elapsed(), timeout, "{sent:?}");
    }
}
