//! Maintenance, draining and metrics of leases: hits that are charged in Redis ahead of requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use tokio::time::MissedTickBehavior;

use super::Local;
use super::table::leases::SWEEP_INTERVAL;
use crate::operations::Operations;
use crate::store::Store;
use weir_common::metric_families;
use weir_common::metrics::MetricSink;

const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(5);

metric_families! {
    LEASES: gauge("leases", &[]) = "Keys of which hits are charged before they are asked for";
    GRANTS: counter("lease_grants", &[]) = "Grants of hits that were charged early";
    LEASED_HITS: counter("leased_hits", &["result"])
        = "Hits that were charged early: served, returned, or lost because they could not be returned or the key was reset";
}

impl<S: Store + Operations> Operations for Local<S> {
    fn inner(&self) -> Option<&dyn Operations> {
        Some(&self.inner)
    }

    /// Returns what is left of leases that have ended to the inner store.
    fn maintain(&self) -> BoxFuture<'_, ()> {
        let sweeping = async {
            let mut ticks = tokio::time::interval(Duration::from_micros(SWEEP_INTERVAL));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                self.send(self.table.sweep());
            }
        };
        join(self.inner.maintain(), sweeping).map(drop).boxed()
    }

    fn drain(&self) {
        self.table.drain();
        self.send(self.table.sweep());
        self.inner.drain();
    }

    fn drained(&self) -> BoxFuture<'_, ()> {
        let arrived = async {
            while self.table.in_flight.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(DRAIN_CHECK_INTERVAL).await;
            }
        };
        arrived.boxed()
    }

    fn forget_denials(&self) {
        self.table.forget_denials();
        self.inner.forget_denials();
    }

    fn collect(&self, sink: &mut dyn MetricSink) {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.table.counts;
        sink.gauge(LEASES, self.table.leases() as f64);
        sink.counter(GRANTS, value(&counts.grants));
        let (served, returned) = (value(&counts.served), value(&counts.returned));
        let lost = value(&counts.lost);
        sink.counters(LEASED_HITS, [("served", served), ("returned", returned), ("lost", lost)]);
        self.inner.collect(sink);
    }
}
