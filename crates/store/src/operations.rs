//! How the service starts, maintains, observes and drains a store, and what a store reports for the status page.

use std::future::{pending, ready};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::error::StoreError;
use crate::shared::{ReplicaTexts, SharedTable};
use weir_common::metrics::MetricSink;

/// What the status page shows of a store.
#[derive(Clone, Debug, Default)]
pub struct StoreStatus {
    /// Where states are kept: one, or two if limits of one second are kept separately.
    pub backends: Vec<BackendStatus>,
    /// What is known about failures of the store; none if it cannot fail.
    pub failures: Option<FailureStatus>,
}

/// A place where states are kept.
#[derive(Clone, Debug, Default)]
pub struct BackendStatus {
    /// `main` or `per_second`.
    pub instance: &'static str,
    /// `memory`, `disk` or `redis`.
    pub kind: &'static str,
    /// The address of the store, without logins; none in memory.
    pub address: Option<String>,
    /// The keys held, if they are in memory.
    pub keys: Option<usize>,
    /// All connections. Charges of those that are down or slow fail at once.
    pub connections: usize,
    /// Connections that are lost, or whose server refuses commands.
    pub connections_down: usize,
    /// Connections that are open, and probed after a slow round trip.
    pub connections_slow: usize,
    /// Set if connections are slow and none is down.
    pub late: Option<Late>,
    /// Why a connection is down or slow.
    pub down_because: Option<StoreError>,
    /// How long ago a connection that was down or slow came up.
    pub up_for: Option<Duration>,
    /// What is on disk, if states are kept there.
    pub saved: Option<SavedStatus>,
}

/// Replies that come too late to be waited for.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// How late the last one came; none if none came yet.
    pub after: Option<Duration>,
    /// The threshold: the setting `store.redis.slow_after`.
    pub slow_after: Duration,
}

/// How current the files of a store are.
#[derive(Clone, Debug)]
pub struct SavedStatus {
    /// What a crash would lose at most.
    pub sync_age: Duration,
    /// The error, if nothing can be saved.
    pub not_saved_because: Option<String>,
    /// How often files were removed or replaced by another program.
    pub files_lost: u64,
}

/// How failures of the store are answered.
#[derive(Clone, Debug)]
pub struct FailureStatus {
    /// The policy of domains without their own.
    pub on_failure: &'static str,
    /// All charges, answered by the store or by a policy, since the start.
    pub charges: u64,
    /// Charges that the store failed to answer, by reason.
    pub failed: [(StoreError, u64); StoreError::ALL.len()],
    /// Charges answered by policies.
    pub degraded: Vec<(&'static str, u64)>,
}

/// Runs a store. The defaults are those of the store that this one wraps; without one, they suit a store that is ready
/// from the start and needs no maintenance.
pub trait Operations: Send + Sync {
    /// Returns the store that this one wraps.
    fn inner(&self) -> Option<&dyn Operations> {
        None
    }

    /// Prepares the calling thread for charges, for instance by connecting it. Resolves with the store's first answer.
    fn connect(&self) -> BoxFuture<'_, ()> {
        self.inner().map_or_else(|| ready(()).boxed(), Operations::connect)
    }

    /// Returns whether requests get answers before [`connect`](Self::connect) resolves; if not, health waits for it.
    fn is_ready(&self) -> bool {
        self.inner().is_none_or(Operations::is_ready)
    }

    /// Returns whether states can be reached now. A store that cannot be, fails charges.
    fn is_connected(&self) -> bool {
        self.inner().is_none_or(Operations::is_connected)
    }

    /// Does what has to be done from time to time, until it is dropped. Called once, in a runtime with timers.
    fn maintain(&self) -> BoxFuture<'_, ()> {
        self.inner().map_or_else(|| pending().boxed(), Operations::maintain)
    }

    /// Returns the table that all replicas share; none if the states are this process's own.
    fn shared_table(&self) -> Option<&dyn SharedTable> {
        self.inner()?.shared_table()
    }

    /// Returns the texts of the replicas that share the states; none if they are this process's own.
    fn replica_texts(&self) -> Option<&dyn ReplicaTexts> {
        self.inner()?.replica_texts()
    }

    /// Returns hits that were charged early and not used, and charges no more of them: the service is about to stop.
    fn drain(&self) {
        self.inner().into_iter().for_each(Operations::drain);
    }

    /// Resolves when the store has answered what [`drain`](Self::drain) has sent.
    fn drained(&self) -> BoxFuture<'_, ()> {
        self.inner().map_or_else(|| ready(()).boxed(), Operations::drained)
    }

    /// Forgets denials that are repeated without the store.
    fn forget_denials(&self) {
        self.inner().into_iter().for_each(Operations::forget_denials);
    }

    /// Passes the metrics of the store to a sink.
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.inner().into_iter().for_each(|inner| inner.collect(sink));
    }

    /// Adds what the status page shows of the store to `status`.
    fn status(&self, status: &mut StoreStatus) {
        self.inner().into_iter().for_each(|inner| inner.status(status));
    }
}
