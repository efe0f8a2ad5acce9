//! What all gRPC connections share: the services that answer calls, and the bounds on memory, streams and time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tonic::service::Routes;

use super::stats::{GrpcStats, OtherMethod, STREAM_QUOTAS};
use crate::net::ClientMemory;
use crate::rls::service::RateLimit;
use crate::trace::Sampler;
use weir_common::throttle::Throttle;

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
    pub(super) rate_limit: RateLimit<S>,
    /// The services that tonic serves: those of all methods but `ShouldRateLimit`.
    pub(super) routes: Routes,
    pub(super) limits: Limits,
    pub(super) sampler: Sampler,
    pub(super) client_memory: Arc<ClientMemory>,
    pub stats: Arc<GrpcStats>,
    has_quotas: bool,
    abuse_log: Throttle,
}

/// Bytes per connection that do not count against [`Limits::max_buffered`].
const FREE_BYTES: usize = 128 << 10;

impl<S> Grpc<S> {
    pub fn new(
        rate_limit: RateLimit<S>,
        routes: Routes,
        limits: Limits,
        sampler: Sampler,
    ) -> Grpc<S> {
        Grpc {
            rate_limit,
            routes: routes.prepare(),
            limits,
            sampler,
            client_memory: ClientMemory::new(limits.max_buffered, FREE_BYTES),
            stats: Arc::new(GrpcStats::default()),
            has_quotas: false,
            abuse_log: Throttle::default(),
        }
    }

    pub fn with_quotas(self, has_quotas: bool) -> Grpc<S> {
        Grpc { has_quotas, ..self }
    }

    /// Returns whether tonic serves a method.
    pub(super) fn serves(&self, path: &str) -> bool {
        OtherMethod::of(path).full_name().is_some() && (self.has_quotas || path != STREAM_QUOTAS)
    }

    pub(super) fn log_abuse(&self, peer: Option<SocketAddr>, error: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.abuse_log.pass() {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(peer, %error, suppressed, "closed an abusive gRPC connection");
        }
    }
}
