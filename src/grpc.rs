//! Serves gRPC over the h2 crate, a task for each connection.
//!
//! `ShouldRateLimit` is told by its path before anything else, read and written without generated
//! code, and answered on the connection's own task: at once where the store does so, else as its
//! answers come. So the answers to all requests that came with one read, or that the store answered
//! together, leave with one write. Every other method goes to tonic's services.

mod budget;
mod call;
mod client_wait;
mod connection;
mod hold_guard;
mod outbound;
mod read_scheduler;
mod reset_counter;
mod throttled_io;
mod tonic_bridge;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tonic::service::Routes;

use self::budget::{ConnectionBudget, MemoryBudget};
use self::connection::Shared;
use self::outbound::Outbound;
pub use self::read_scheduler::ReadScheduler;
use self::throttled_io::ThrottledIo;
use crate::connections::ConnectionHandle;
use crate::service::RateLimit;
use crate::store::Store;
use crate::throttle::Throttle;

/// What a client may take of the process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest request, in bytes.
    pub max_message: usize,
    /// The largest header list of a request, in bytes.
    pub max_headers: u32,
    /// Requests in flight on one connection.
    pub max_streams: u32,
    /// Bytes of partly received requests and unread answers that all clients together may make the
    /// process hold, besides a little for each connection.
    pub max_buffered: usize,
    /// How often a connection is pinged; zero: never.
    pub keepalive: Duration,
    /// How long the answer to a ping may take; also the time for a connection to begin, for a
    /// request to arrive whole, and for an answer to be read.
    pub timeout: Duration,
}

/// What is served, and how.
#[derive(Debug)]
pub struct Grpc<S> {
    rate_limit: RateLimit<S>,
    /// Everything but `ShouldRateLimit`.
    routes: Routes,
    limits: Limits,
    budget: Arc<MemoryBudget>,
    /// Throttles the log of connections that are closed as abusive.
    abuse: Throttle,
}

/// How often a line that clients can provoke is logged, at most.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The path of `ShouldRateLimit`.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

impl<S: Store + 'static> Grpc<S> {
    pub fn new(rate_limit: RateLimit<S>, routes: Routes, limits: Limits) -> Grpc<S> {
        Grpc {
            rate_limit,
            routes: routes.prepare(),
            limits,
            budget: MemoryBudget::new(limits.max_buffered),
            abuse: Throttle::new(LOG_INTERVAL),
        }
    }

    /// Serves one connection to its end, beside the others of its thread.
    ///
    /// When `closed` scheduler true it sends GOAWAY, and ends once the requests in flight are answered.
    /// `peer` is for the log.
    pub async fn serve(
        self: &Arc<Self>,
        io: impl AsyncRead + AsyncWrite + Unpin,
        handle: &ConnectionHandle,
        peer: Option<SocketAddr>,
        closed: watch::Receiver<bool>,
        scheduler: &ReadScheduler,
    ) {
        let turn = scheduler.new_turn();
        let outbound = Arc::<Outbound>::default();
        let io = ThrottledIo::new(io, turn.clone(), outbound.clone());
        let budget = ConnectionBudget::new(&self.budget);
        let shared = Shared { grpc: self.clone(), budget, outbound, tonic_calls: Arc::default() };
        let mut served = pin!(connection::serve(Arc::new(shared), io, handle, peer, closed));
        poll_fn(|cx| {
            turn.start_poll();
            served.as_mut().poll(cx)
        })
        .await;
    }

    /// Logs that a connection is closed since its client demands too much.
    fn log_abuse(&self, peer: Option<SocketAddr>, error: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.abuse.pass() {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(peer, %error, suppressed, "closed an abusive gRPC connection");
        }
    }
}
