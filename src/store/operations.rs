//! What a store needs besides charges: to start, to be maintained and to be observed.

use std::future::{Future, pending, ready};

use super::Store;
use crate::metrics::MetricSink;

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

    /// Does what has to be done from time to time, until it is dropped. Called once, in a runtime
    /// with timers.
    fn maintain(&self) -> impl Future<Output = ()> + Send {
        pending()
    }

    /// Lists the store's metrics.
    fn collect(&self, _sink: &mut dyn MetricSink) {}
}
