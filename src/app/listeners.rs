//! The listeners: what distinguishes them, and their sockets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::http::{MAX_OVERFLOW_CONNECTIONS, Server};
use crate::net::tls::{Certificates, Handshakes};
use crate::net::{
    self, BoundSocket, ConnectionLimits, Connections, ListenerMetrics, Opener, Workers,
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
    /// How many connections beyond the maximum are accepted and get an error.
    overflow: usize,
    /// How long a connection is idle before a newcomer may replace it.
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

/// A listener that is bound, but not served.
#[derive(Debug)]
pub(super) struct Bound {
    pub listener: &'static Listener,
    pub socket: BoundSocket,
    pub tls: Option<Arc<Certificates>>,
    /// The timeout of clients.
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

    /// Serves HTTP on a thread of its own, until `closed` becomes true. The receiver resolves when it has ended.
    pub fn serve_http(
        self,
        router: axum::Router,
        connections: Arc<Connections>,
        closed: &watch::Receiver<bool>,
    ) -> anyhow::Result<oneshot::Receiver<()>> {
        let server = Server { router, opener: self.opener(1)?, shutdown: closed.clone() };
        let thread = format!("weir-{}", self.listener.name);
        Ok(threads::start(&thread, move || async move {
            let Some(listener) = register(self.socket) else { return };
            server.serve(listener, connections).await;
        })?)
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
