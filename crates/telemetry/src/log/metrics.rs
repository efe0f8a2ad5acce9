//! The metrics of the log.

use weir_common::metrics::{Counter, MetricFamily, MetricSink, MetricSource};

/// The metrics of the log.
#[derive(Debug, Default)]
pub struct LogMetrics {
    pub(super) dropped: Counter,
}

const LOG_LINES_DROPPED: MetricFamily = MetricFamily::counter(
    "log_lines_dropped",
    "Log lines dropped because standard error was not read in time",
    &[],
);

impl MetricSource for LogMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counter(LOG_LINES_DROPPED, self.dropped.get());
    }
}
