//! Sweeping, draining and metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use tokio::time::MissedTickBehavior;

use super::table::SWEEP_INTERVAL;
use super::{Leases, Leasing};
use crate::Operations;
use weir_common::metrics::{MetricFamily, MetricSink, SampleValue};

/// The interval of checking whether everything has been returned.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(5);

const LEASES: MetricFamily =
    MetricFamily::gauge("leases", "Keys of which hits are charged before they are asked for", &[]);
const GRANTS: MetricFamily =
    MetricFamily::counter("lease_grants", "Grants of hits that were charged early", &[]);
const LEASED_HITS: MetricFamily = MetricFamily::counter(
    "leased_hits",
    "Hits that were charged early: served, returned, or lost because they could not be returned or the key was reset",
    &["result"],
);

impl<S: Leasing + Operations> Operations for Leases<S> {
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

    fn collect(&self, sink: &mut dyn MetricSink) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let counts = &self.table.counts;
        sink.gauge(LEASES, self.table.len() as f64);
        sink.counter(GRANTS, count(&counts.grants));
        sink.family(LEASED_HITS);
        for (result, hits) in
            [("served", &counts.served), ("returned", &counts.returned), ("lost", &counts.lost)]
        {
            sink.sample(&[("result", result)], SampleValue::Counter(count(hits)));
        }
        self.inner.collect(sink);
    }
}
