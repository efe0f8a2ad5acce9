//! What a store needs besides charges: to start, to be maintained and to be observed.

use std::future::{Future, pending, ready};
use std::time::Duration;

use super::{SharedTable, Store, StoreError};
use weir_common::metrics::MetricSink;

/// What the status page shows of a store.
#[derive(Clone, Debug, Default)]
pub struct StoreStatus {
    /// Where states are kept: one, or two if limits of one second are kept separately.
    pub backends: Vec<BackendStatus>,
    /// None if nothing can fail.
    pub failures: Option<FailureStatus>,
}

/// A place where states are kept.
#[derive(Clone, Debug, Default)]
pub struct BackendStatus {
    /// `main` or `per_second`.
    pub instance: &'static str,
    pub kind: &'static str,
    /// Without logins; none in memory.
    pub address: Option<String>,
    /// The keys held, if they are in memory.
    pub keys: Option<usize>,
    /// Connections, and those that are down: their charges fail at once, until the server answers a
    /// probe in time.
    pub connections: usize,
    pub connections_down: usize,
    /// Why one of them is down.
    pub down_because: Option<StoreError>,
    /// What is on disk, if states are kept there.
    pub saved: Option<SavedStatus>,
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
    /// Whether a charge has failed within the last ten seconds of requests.
    pub is_failing: bool,
    /// Charges answered by policies, since the start.
    pub degraded: Vec<(&'static str, u64)>,
}

/// Runs a store. The defaults suit one that is ready from the start and needs no maintenance.
pub trait Operations: Store {
    /// Prepares the calling thread for charges, for instance by connecting it. Resolves when the
    /// store has answered for the first time.
    fn connect(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Returns whether requests get answers before [`connect`](Self::connect) has resolved. If not,
    /// health waits for that.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns whether states can be reached now. A store that cannot be, fails charges.
    fn is_connected(&self) -> bool {
        true
    }

    /// Does what has to be done from time to time, until it is dropped. Called once, in a runtime
    /// with timers.
    fn maintain(&self) -> impl Future<Output = ()> + Send {
        pending()
    }

    /// Returns the table that all replicas share; none if the states are this process's own.
    fn shared_table(&self) -> Option<&dyn SharedTable> {
        None
    }

    /// Forgets denials that are repeated without the store.
    fn forget_denials(&self) {}

    /// Lists the store's metrics.
    fn collect(&self, _sink: &mut dyn MetricSink) {}

    /// Adds what the status page shows of the store to `status`.
    fn status(&self, _status: &mut StoreStatus) {}
}
