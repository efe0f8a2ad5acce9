//! The gRPC server: HTTP/2 by the h2 crate, one task per connection.
//!
//! `ShouldRateLimit` is recognized by its path before anything else, decoded and encoded without
//! generated code, and answered on the connection's task: immediately if the store does so, else
//! when the store answers. The responses to requests that arrived with one read, or that the store
//! answered together, therefore leave with one write. All other methods are served by tonic.

mod call;
mod calls;
mod client_wait;
mod connection;
mod fairness;
mod gzip;
mod http1;
mod place;
mod refused;
mod resets;
mod stats;
mod tonic_bridge;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, watch};
use tonic::service::Routes;

use self::call::{CallContext, CallTimer};
pub use self::fairness::ReadScheduler;
use self::fairness::ThrottledIo;
pub use self::gzip::Inflater;
pub use self::stats::GrpcStats;
use crate::net::{ConnectionBudget, ConnectionHandle, MemoryBudget};
use crate::rls::service::RateLimit;
use crate::trace::{Ends, Sampler};
use weir_common::throttle::Throttle;
use weir_store::Store;

/// The bounds on what clients may take from the process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest request, in bytes.
    pub max_message: usize,
    /// Concurrent streams per connection.
    pub max_streams: u32,
    /// Bytes of partly received requests and unread responses of all connections, but for the first 128 KiB of each.
    pub max_buffered: usize,
    /// The timeout of a handshake, of the answer to a ping, of receiving a whole request, and of a
    /// client reading a response.
    pub timeout: Duration,
    /// The age at which a connection is asked to close, and how long its calls may then take.
    pub max_age: Duration,
    pub max_age_grace: Duration,
}

#[derive(Debug)]
pub struct Grpc<S> {
    rate_limit: RateLimit<S>,
    /// The services of all other methods.
    routes: Routes,
    limits: Limits,
    sampler: Sampler,
    budget: Arc<MemoryBudget>,
    pub stats: Arc<GrpcStats>,
    abuse_log: Throttle,
}

/// Bytes per connection that do not count against [`Limits::max_buffered`].
const FREE_BYTES: usize = 128 << 10;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

impl<S: Store> Grpc<S> {
    pub fn new(rate_limit: RateLimit<S>, routes: Routes, limits: Limits) -> Grpc<S> {
        Grpc {
            rate_limit,
            routes: routes.prepare(),
            limits,
            sampler: Sampler::default(),
            budget: MemoryBudget::new(limits.max_buffered, FREE_BYTES),
            stats: Arc::new(GrpcStats::default()),
            abuse_log: Throttle::default(),
        }
    }

    pub fn with_sampler(self, sampler: Sampler) -> Grpc<S> {
        Grpc { sampler, ..self }
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
            budget: ConnectionBudget::new(&self.budget),
            outbound: io.outbound.clone(),
            timer: CallTimer::new(self.stats.clone()),
            ends,
            tonic_calls: Arc::default(),
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

    fn log_abuse(&self, peer: Option<SocketAddr>, error: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.abuse_log.pass() {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(peer, %error, suppressed, "closed an abusive gRPC connection");
        }
    }
}
