//! Threads that do the TLS handshakes of a listener.
//!
//! A handshake takes as much of a CPU as hundreds of rate-limit decisions, and a client makes weir do one with a
//! few bytes. So handshakes run on threads of their own, at a lower priority than those that serve
//! requests. A connection goes to such a thread when its client has started the handshake, and comes
//! back when it is complete.
//!
//! A thread does one step of a handshake at a time, for each connection in turn. Connections that have
//! not had their first step wait in a [queue](super::queue). One that its client has closed meanwhile
//! costs nothing when it is its turn.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::{CertificateError, OtherError, ServerConnection};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::certificates::Certificates;
use super::queue::Queue;
use crate::net::connections::ConnectionHandle;
use crate::net::stream::{DetachedStream, Stream, TlsStream};
use weir_common::threads;
use weir_common::throttle::Throttle;

/// The part of a listener's connections that may wait for the first step of their handshake. With more,
/// connections would be evicted for newcomers soon after their turn has come.
const QUEUED_DIVISOR: usize = 4;

/// Serving threads per handshake thread. When all are busy, this and their low priority leave most of
/// the CPU to requests; when not, thousands of connections a second can be opened.
const THREADS_PER_THREAD: usize = 4;

#[derive(Debug)]
pub struct Handshakes {
    queues: Vec<Arc<Queue<Handshake>>>,
    next: AtomicUsize,
    certificates: Arc<Certificates>,
    failure_log: Throttle,
    refusal_log: Throttle,
}

#[derive(Debug)]
struct Handshake {
    socket: DetachedStream,
    /// The connection is open for as long as its socket.
    handle: Arc<ConnectionHandle>,
    done: oneshot::Sender<io::Result<DetachedStream>>,
}

impl Handshakes {
    /// Starts the threads, for a listener with `serving_threads` threads.
    pub fn start(
        certificates: Arc<Certificates>,
        serving_threads: usize,
    ) -> anyhow::Result<Arc<Handshakes>> {
        let listener = certificates.options.listener;
        let threads = (0..serving_threads.div_ceil(THREADS_PER_THREAD)).map(|i| {
            let queue = Arc::new(Queue::new());
            let (certificates, queued) = (certificates.clone(), queue.clone());
            let name = format!("weir-{listener}-tls-{i}");
            threads::start(&name, || work(certificates, queued))?;
            Ok(queue)
        });
        let queues: anyhow::Result<_> = threads.collect();
        Ok(Arc::new(Handshakes {
            queues: queues?,
            next: AtomicUsize::new(0),
            certificates,
            failure_log: Throttle::default(),
            refusal_log: Throttle::default(),
        }))
    }

    /// Does the handshake of a connection. None if it fails, or if there are too many.
    pub async fn run(&self, socket: Stream, handle: Arc<ConnectionHandle>) -> Option<Stream> {
        let metrics = &self.certificates.metrics;
        let peer = socket.peer();
        let max_queued = handle.max_connections() / QUEUED_DIVISOR / self.queues.len();
        let (done, result) = oneshot::channel();
        let handshake = Handshake { socket: socket.detach().ok()?, handle, done };
        let queue = self.queues.get(self.next.fetch_add(1, Ordering::Relaxed) % self.queues.len());
        if let Some(displaced) = queue?.push(handshake, max_queued) {
            drop(displaced);
            self.count_refusal();
        }
        match result.await.ok()?.and_then(DetachedStream::attach) {
            Ok(stream) => {
                metrics.handshakes.inc();
                Some(stream)
            }
            Err(error) => {
                if is_failure(&error) {
                    metrics.handshake_failures.inc();
                }
                self.log_failure(&error, peer);
                None
            }
        }
    }

    fn count_refusal(&self) {
        self.certificates.metrics.handshakes_refused.inc();
        if let Some(suppressed) = self.refusal_log.pass() {
            let listener = self.certificates.options.listener;
            tracing::warn!(
                listener,
                suppressed,
                "connection closed: too many TLS handshakes at once"
            );
        }
    }

    fn log_failure(&self, error: &io::Error, peer: Option<std::net::SocketAddr>) {
        let listener = self.certificates.options.listener;
        let peer = peer.map(tracing::field::display);
        if !is_failure(error) {
            tracing::debug!(listener, peer, %error, "TLS handshake failed");
        } else if let Some(suppressed) = self.failure_log.pass() {
            let error = cause(error);
            tracing::warn!(listener, peer, error, suppressed, "TLS handshake failed");
        }
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.close());
    }
}

/// Whether a handshake failed, and not only the client disconnected, as a TCP health check does.
fn is_failure(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// Returns the text of an error. That of rustls shows a verifier's error as a Rust value.
fn cause(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(error)))) => {
            error.to_string()
        }
        _ => error.to_string(),
    }
}

/// Does the handshakes of one thread until the queue is closed.
async fn work(certificates: Arc<Certificates>, queued: Arc<Queue<Handshake>>) {
    threads::lower_priority();
    while let Some(handshake) = queued.next().await {
        let Handshake { socket, handle, mut done } = handshake;
        // Timed out or evicted, or the client has disconnected.
        if done.is_closed() || socket.is_closed() {
            continue;
        }
        let certificates = certificates.clone();
        tokio::spawn(async move {
            let result = tokio::select! {
                biased;
                // Timed out or evicted.
                () = done.closed() => return,
                result = handshake_of(socket, &certificates) => result,
            };
            // If this fails, it was too late.
            let _ = done.send(result);
            drop(handle);
        });
        // Those in progress go first: a handshake that has begun is completed.
        yield_now().await;
    }
}

async fn handshake_of(
    socket: DetachedStream,
    certificates: &Certificates,
) -> io::Result<DetachedStream> {
    let session = ServerConnection::new(certificates.active());
    let session = session.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let mut stream = TlsStream::new(socket.attach()?, Box::new(session));
    while !poll_fn(|cx| stream.poll_handshake(cx)).await? {
        yield_now().await;
    }
    Stream::Tls(Box::new(stream)).detach()
}
