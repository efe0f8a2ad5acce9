//! Serves HTTP/1: `/json`, probes and `/metrics` for clients; the debug pages, the web page and `/v1` for operators.

mod buffer_memory;
pub mod clients;
mod metrics;
pub mod operators;
mod page;
mod probes;
mod write_timeout;

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::header::CONNECTION;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{mpsc, watch};
use tower_service::Service;

pub use self::metrics::{MetricsPages, metrics};
use self::probes::PROBES;
use self::write_timeout::WriteTimeout;
use crate::net::{ConnectionHandle, Connections, Listener, Opener, Stream, accept};
use crate::trace::Ends;

/// The connections, time and memory that the clients of a listener may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_connections: usize,
    /// The timeout of receiving a request's head, once its connection is ready for it; of receiving
    /// its body; and of a client reading a response.
    pub timeout: Duration,
    /// The largest body, in bytes.
    pub max_body: usize,
    /// Bytes of large request and response bodies across all clients.
    pub max_buffered: usize,
}

/// The client's address, and the one that it connected to, for handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Tcp(SocketAddr, Option<SocketAddr>),
    Unix,
    /// The client has disconnected.
    Unknown,
}

impl Peer {
    fn of(socket: &Stream) -> Peer {
        match socket {
            Stream::Unix(_) => Peer::Unix,
            _ => socket.peer().map_or(Peer::Unknown, |client| Peer::Tcp(client, socket.local())),
        }
    }

    pub fn ends(self) -> Ends {
        match self {
            Peer::Tcp(client, server) => Ends { client: Some(client), server },
            Peer::Unix | Peer::Unknown => Ends::default(),
        }
    }

    pub fn is_local(self) -> bool {
        match self {
            Peer::Tcp(client, _) => client.ip().to_canonical().is_loopback(),
            Peer::Unix => true,
            Peer::Unknown => false,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(client, _) => client.fmt(f),
            Peer::Unix => f.write_str("unix socket"),
            Peer::Unknown => f.write_str("unknown"),
        }
    }
}

const MAX_HEAD_BYTES: usize = 16 << 10;

/// Connections beyond the limit. Only `PROBES` are served to them, so that they are answered under
/// any load.
pub const MAX_OVERFLOW_CONNECTIONS: usize = 16;

#[derive(Clone, Debug)]
pub struct Server {
    pub router: Router,
    pub opener: Opener,
    /// Turns true to end it.
    pub shutdown: watch::Receiver<bool>,
}

impl Server {
    /// Serves connections until `shutdown` turns true; then ends when all requests are answered.
    pub async fn serve(self, listener: Listener, connections: Arc<Connections>) {
        let (serving, mut served) = mpsc::channel::<()>(1);
        let mut stop = self.shutdown.clone();
        let spawn = |socket, handle: ConnectionHandle| {
            let (server, serving) = (self.clone(), serving.clone());
            tokio::spawn(async move {
                let handle = Arc::new(handle);
                server.connection(socket, handle.clone()).await;
                // After the socket: its descriptor is free.
                drop((handle, serving));
            });
        };
        tokio::select! {
            // First: clients that have connected are served, or would be reset.
            biased;
            () = accept(listener, connections, spawn) => {}
            _ = stop.wait_for(|shutdown| *shutdown) => {}
        }
        drop(serving);
        served.recv().await;
    }

    async fn connection(self, socket: Stream, handle: Arc<ConnectionHandle>) {
        let Server { router, opener, mut shutdown } = self;
        // If this fails, the connection fails too.
        let _ = socket.prepare();
        let peer = Peer::of(&socket);
        let timeout = opener.timeout;
        let Some(stream) = opener.open(socket, &handle, &mut shutdown).await else { return };
        // hyper adds it to the current time. A timeout that overflows that is no timeout.
        let head_timeout = Instant::now().checked_add(timeout).map(|_| timeout);
        let service = service_fn(|request| answer(router.clone(), request, handle.clone(), peer));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_timeout)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(
                TokioIo::new(WriteTimeout::new(stream, timeout, handle.clone())),
                service,
            );
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            biased;
            // Errors are the client's.
            _ = connection.as_mut() => return,
            // A partly received request is dropped.
            () = handle.evicted() => return,
            _ = shutdown.wait_for(|shutdown| *shutdown) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// Answers one request. Its connection cannot be evicted once the request is received whole.
async fn answer(
    mut router: Router,
    request: Request<Incoming>,
    handle: Arc<ConnectionHandle>,
    peer: Peer,
) -> Result<Response, Infallible> {
    if handle.is_overflow() && !PROBES.contains(&request.uri().path()) {
        let refusal = (StatusCode::SERVICE_UNAVAILABLE, [(CONNECTION, "close")]);
        return Ok(refusal.into_response());
    }
    let mut request = request.map(Body::new);
    handle.set_busy(request.body().is_end_stream());
    request.extensions_mut().insert(handle.clone());
    request.extensions_mut().insert(peer);
    let response = router.call(request).await;
    handle.set_busy(false);
    handle.count_request();
    response
}
