//! The gRPC server: HTTP/2 by the h2 crate, one task per connection.
//!
//! `ShouldRateLimit` is recognized by its path before anything else, decoded and encoded without
//! generated code, and answered on the connection's task: immediately if the store does so, else
//! when the store answers. The responses to requests that arrived with one read, or that the store
//! answered together, therefore leave with one write. All other methods are served by tonic.
//!
//! HTTP/1 clients get an error that says what to change: Envoy speaks HTTP/1 to clusters that do not ask for HTTP/2, and
//! then lets all requests through, since every call fails.

mod call;
mod calls;
mod client_wait;
mod connection;
mod fairness;
mod gzip;
mod refused;
mod resets;
mod server;
mod stats;
mod tonic_bridge;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use self::call::{CallContext, CallTimer};
pub use self::fairness::ReadScheduler;
use self::fairness::ThrottledIo;
pub use self::gzip::Inflater;
pub use self::server::{Grpc, Limits};
pub use self::stats::GrpcStats;
use self::stats::Refused;
use crate::net::{ConnectionHandle, ConnectionMemory, Opener, Stream, Workers};
use crate::trace::Ends;
use weir_store::Store;

/// How every connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const ANSWER: &[u8] = b"HTTP/1.1 505 HTTP Version Not Supported\r\n\
content-type: text/plain\r\n\
connection: close\r\n\
\r\n\
this port is for gRPC, which needs HTTP/2: set http2_protocol_options for Envoy's cluster, and use the port of \
http.address for HTTP/1\n";

/// How long an answered client may take to close the connection.
const LINGER: Duration = Duration::from_secs(1);

/// What an answered client may send until then.
const MAX_UNREAD_BYTES: u64 = 64 << 10;

impl<S: Store> Grpc<S> {
    /// Starts the threads that serve connections, until `draining` turns true and their requests are answered. Each
    /// first spawns what `connect` returns.
    pub fn start_workers<Connecting>(
        self: Arc<Self>,
        threads: usize,
        opener: Opener,
        draining: watch::Receiver<bool>,
        connect: impl Fn() -> Connecting + Clone + Send + 'static,
    ) -> anyhow::Result<Workers>
    where
        Connecting: Future<Output = ()> + Send + 'static,
    {
        Workers::start("weir", threads, move || {
            let (grpc, opener, draining) = (self.clone(), opener.clone(), draining.clone());
            let scheduler = ReadScheduler::default();
            let serve = move |socket: Stream, handle: Arc<ConnectionHandle>| {
                let (grpc, opener, scheduler) = (grpc.clone(), opener.clone(), scheduler.clone());
                let mut draining = draining.clone();
                let server = grpc.sampler.is_on().then(|| socket.local()).flatten();
                let ends = Ends { client: socket.peer(), server };
                async move {
                    let stream = opener.open(socket, &handle, &mut draining).await;
                    let Some(stream) = stream else { return };
                    let peer = ends.client;
                    let stream = grpc.refuse_http1(stream, peer, &handle, &mut draining).await;
                    let Some(stream) = stream else { return };
                    grpc.serve(scheduler.throttle(stream), &handle, ends, draining).await;
                }
            };
            (connect(), serve)
        })
    }

    /// Waits for the first bytes of a connection, and returns it unless they are HTTP/1. None if the client is answered
    /// or gone, sends nothing in time, the connection is evicted, or the service stops.
    async fn refuse_http1(
        &self,
        stream: Stream,
        peer: Option<SocketAddr>,
        handle: &ConnectionHandle,
        shutdown: &mut watch::Receiver<bool>,
    ) -> Option<Stream> {
        // With TLS, only HTTP/2 is offered.
        if matches!(stream, Stream::Tls(_)) {
            return Some(stream);
        }
        let mut start = [0; PREFACE.len()];
        let received = tokio::select! {
            biased;
            received = timeout(self.limits.timeout, stream.peek(&mut start)) => received.ok()?.ok()?,
            () = handle.evicted() => return None,
            () = connection::shut_down(shutdown) => return None,
        };
        let start = &start[..received];
        if PREFACE.starts_with(start) || !start.first().is_some_and(u8::is_ascii_uppercase) {
            return Some(stream).filter(|_| received > 0);
        }
        let line = start.split(|byte| *byte == b'\r').next().unwrap_or_default();
        self.stats.count_refused(Refused::Http1, peer, &String::from_utf8_lossy(line));
        tokio::select! {
            _ = timeout(LINGER, answer(stream)) => {}
            () = handle.evicted() => {}
        }
        None
    }

    /// Serves one connection until it is closed. The scheduler of its thread throttles its socket.
    ///
    /// When `shutdown` turns true it sends GOAWAY, and ends once the requests in flight are
    /// answered. `ends` is for the log and for spans.
    pub async fn serve(
        self: &Arc<Self>,
        io: ThrottledIo<impl AsyncRead + AsyncWrite + Unpin>,
        handle: &ConnectionHandle,
        ends: Ends,
        shutdown: watch::Receiver<bool>,
    ) {
        let turn = io.turn.clone();
        let shared = CallContext {
            grpc: self.clone(),
            memory: ConnectionMemory::new(&self.client_memory),
            outbound: io.outbound.clone(),
            timer: CallTimer::new(self.stats.clone()),
            ends,
            tonic_calls: Arc::default(),
            leaving: OnceLock::new(),
            scheduler: turn.scheduler.clone(),
            inflating: Mutex::default(),
        };
        let mut served = pin!(connection::serve(Arc::new(shared), io, handle, shutdown));
        poll_fn(|cx| {
            turn.start_poll();
            served.as_mut().poll(cx)
        })
        .await;
    }
}

/// Answers, and waits for the client to close: unread bytes would reset the connection and lose the answer.
async fn answer(mut stream: Stream) -> std::io::Result<u64> {
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    copy(&mut stream.take(MAX_UNREAD_BYTES), &mut sink()).await
}
