//! The metrics of the connection to the management server.

use weir_common::metrics::{Counter, Gauge, MetricFamily, MetricSink, MetricSource};

/// The metrics of a management server.
#[derive(Clone, Debug, Default)]
pub struct XdsMetrics {
    pub connected: Gauge,
    pub stream_failures: Counter,
}

const XDS_CONNECTED: MetricFamily =
    MetricFamily::gauge("xds_connected", "Open streams from the management server (0 or 1)", &[]);
const XDS_STREAM_FAILURES: MetricFamily = MetricFamily::counter(
    "xds_stream_failures",
    "Streams from the management server that failed or ended",
    &[],
);

impl MetricSource for XdsMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.gauge(XDS_CONNECTED, self.connected.get() as f64);
        sink.counter(XDS_STREAM_FAILURES, self.stream_failures.get());
    }
}
