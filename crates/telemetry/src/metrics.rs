//! The registry of metrics. Counts live where events happen, and are read when Prometheus or StatsD gets them.

mod process;

pub use process::ProcessMetrics;

use std::sync::Arc;

use parking_lot::Mutex;

use weir_common::metrics::{CappedSink, MetricSink, MetricSource};

#[derive(Debug)]
pub struct Metrics {
    sources: Mutex<Vec<Arc<dyn MetricSource>>>,
    max_series: usize,
}

impl Metrics {
    /// Creates a registry that lists up to `max_series` series of each metric.
    pub fn new(max_series: usize) -> Metrics {
        Metrics { sources: Mutex::default(), max_series }
    }

    /// Adds a source. Its families must not be those of another source.
    pub fn add(&self, source: Arc<dyn MetricSource>) {
        self.sources.lock().push(source);
    }

    pub fn collect(&self, sink: &mut dyn MetricSink) {
        // Cloned, so that a source is not called with a lock held.
        let sources = self.sources.lock().clone();
        let mut capped = CappedSink::new(sink, self.max_series);
        sources.iter().for_each(|source| source.collect(&mut capped));
        capped.finish();
    }
}
