//! The listeners of the service (gRPC, Redis clients, HTTP, debug, Prometheus): their names and bounds, and how `App`
//! binds the socket of each and then serves it.

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::BoxFuture;
use tokio::sync::{oneshot, watch};
use tracing::Level;

use crate::health::Health;
use crate::http::{MAX_OVERFLOW_CONNECTIONS, Server};
use crate::net::tls::{Certificates, Handshakes};
use crate::net::{
    self, Address, BoundSocket, ConnectionLimits, Connections, ListenerMetrics, Opener, Workers,
};
use crate::settings::Settings;
use weir_common::error::SetupError;
use weir_common::threads;

#[derive(Debug, PartialEq, Eq)]
pub struct Listener {
    /// The name in metrics and in settings.
    pub name: &'static str,
    /// The name in the log.
    pub title: &'static str,
    /// The setting with the maximum of its connections.
    max_connections: &'static str,
    /// How many connections beyond the maximum are accepted: they are served health checks, and an error for all else.
    overflow: usize,
    /// How long a connection is idle before a new one may replace it, if the maximum is reached.
    min_idle: Duration,
}

pub static GRPC: Listener = long_lived("grpc", "gRPC", "grpc.max_connections");
pub static RESP: Listener = long_lived("resp", "RESP", "resp.max_connections");
pub static HTTP: Listener = http("http", "HTTP");
pub static DEBUG: Listener = http("debug", "debug");
/// The listener for Prometheus.
pub static METRICS: Listener = http("metrics", "metrics");

/// A listener whose clients keep their connections.
const fn long_lived(
    name: &'static str,
    title: &'static str,
    max_connections: &'static str,
) -> Listener {
    // A client that is evicted sooner would reconnect at once and evict another.
    let min_idle = Duration::from_secs(1);
    Listener { name, title, max_connections, overflow: 0, min_idle }
}

const fn http(name: &'static str, title: &'static str) -> Listener {
    Listener {
        name,
        title,
        max_connections: "http.max_connections",
        overflow: MAX_OVERFLOW_CONNECTIONS,
        min_idle: Duration::ZERO,
    }
}

/// What all listeners share.
#[derive(Clone)]
pub(super) struct Opening {
    /// Turns true to close them.
    pub closed: watch::Receiver<bool>,
    /// The level of the lines about them in the log.
    pub announced: Level,
    pub health: Arc<Health>,
    /// Whether those for requests listen only once the first rules are loaded or rejected. A management server may send
    /// none for long, and probes use the gRPC port.
    pub after_first_load: bool,
}

/// Resolves when the threads of a server have ended, or one has failed.
pub(super) type Serving = BoxFuture<'static, anyhow::Result<()>>;

/// Returns what resolves when a thread has ended.
pub(super) fn serving(ended: oneshot::Receiver<()>) -> Serving {
    Box::pin(async { ended.await.context("a thread failed: see the log") })
}

/// A listener that is bound, but neither listens nor is served.
#[derive(Debug)]
pub(super) struct Bound {
    pub listener: &'static Listener,
    pub socket: BoundSocket,
    pub tls: Option<Arc<Certificates>>,
    timeout: Duration,
}

impl Bound {
    /// Binds `socket`, with the TLS of the listener's settings.
    pub async fn new(
        listener: &'static Listener,
        settings: &Settings,
        socket: impl Future<Output = anyhow::Result<BoundSocket>>,
    ) -> Result<Bound, SetupError> {
        let tls = settings.tls_options(listener.name).map(Certificates::load).transpose()?;
        let socket = socket.await.map_err(SetupError::unavailable)?;
        Ok(Bound { listener, socket, tls, timeout: settings.client_timeout() })
    }

    /// Returns what bounds the listener's connections, at most `max`.
    pub fn connections(&self, max: usize, metrics: &ListenerMetrics) -> Arc<Connections> {
        let Listener { name, max_connections: setting, overflow, min_idle, .. } = *self.listener;
        let limits = ConnectionLimits { listener: name, setting, max, overflow, min_idle };
        Connections::new(limits, metrics.add(name))
    }

    /// Returns what opens its connections, which `threads` threads serve.
    pub fn opener(&self, threads: usize) -> anyhow::Result<Opener> {
        let handshakes = self.tls.clone().map(|tls| Handshakes::start(tls, threads)).transpose()?;
        Ok(Opener { handshakes, timeout: self.timeout })
    }

    /// Listens, and logs where, with the host as it is configured and in the reference's words.
    fn listen(&self, level: Level) -> anyhow::Result<()> {
        self.socket.listen()?;
        let (title, address) = (self.listener.title, self.socket.address()?);
        match level {
            Level::WARN => tracing::warn!("Listening for {title} on '{address}'"),
            _ => tracing::info!("Listening for {title} on '{address}'"),
        }
        if let (true, Address::Tcp { host, port }) = (*self.listener == DEBUG, address) {
            let is_here = matches!(host.as_str(), "" | "0.0.0.0" | "127.0.0.1" | "::" | "::1");
            let host = if is_here { "localhost" } else { &host };
            tracing::info!("for operators: open http://{host}:{port}");
        }
        Ok(())
    }

    /// Serves HTTP on a thread of its own.
    pub fn serve_http(
        self,
        router: axum::Router,
        connections: Arc<Connections>,
        opening: &Opening,
    ) -> anyhow::Result<Serving> {
        self.listen(opening.announced)?;
        let server = Server { router, opener: self.opener(1)?, shutdown: opening.closed.clone() };
        let thread = format!("weir-{}", self.listener.name);
        let ended = threads::start(&thread, move || async move {
            let Some(listener) = register(self.socket) else { return };
            server.serve(listener, connections).await;
        })?;
        Ok(serving(ended))
    }

    /// Listens for requests, and calls `serve`. Until it listens, the system refuses connections, and health reports not
    /// serving.
    pub fn serve_requests(
        self,
        opening: &Opening,
        serve: impl FnOnce(Bound) -> anyhow::Result<oneshot::Receiver<()>> + Send + 'static,
    ) -> Serving {
        let Opening { mut closed, announced, health, after_first_load } = opening.clone();
        Box::pin(async move {
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return Ok(()),
                () = health.first_load(), if after_first_load => {}
                () = ready(()), if !after_first_load => {}
            }
            let opened = self.listen(announced).and_then(|()| serve(self));
            let opened = opened.map_err(SetupError::unavailable)?;
            health.opened();
            serving(opened).await
        })
    }

    /// Accepts connections for `workers` until `closed` becomes true. Then calls `on_closed`, and ends when the last
    /// connection is closed.
    pub async fn accept_for(
        self,
        workers: Workers,
        connections: Arc<Connections>,
        mut closed: watch::Receiver<bool>,
        on_closed: impl FnOnce(),
    ) {
        let closed = async move { drop(closed.wait_for(|closed| *closed).await) };
        let Some(listener) = register(self.socket) else { return };
        workers.serve(listener, connections, closed, on_closed).await;
    }
}

/// Registers a listener with this thread's runtime.
fn register(socket: BoundSocket) -> Option<net::Listener> {
    net::Listener::attach(socket).inspect_err(|error| tracing::error!(%error, "cannot listen")).ok()
}
