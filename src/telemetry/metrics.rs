//! The registry of metrics. Counts live where events happen (rules, limiter, store), and are read
//! when an exporter asks.

mod process;

pub use process::ProcessMetrics;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::connections::{self, ConnectionCounts};
use crate::metrics::{CappedSink, Counter, Gauge, MetricFamily, MetricSink, MetricSource};

/// The registry, and the counts that live nowhere else.
#[derive(Debug)]
pub struct Metrics {
    sources: Mutex<Vec<Arc<dyn MetricSource>>>,
    listeners: Mutex<Vec<(&'static str, ConnectionCounts)>>,
    max_series: usize,
    pub config_load_success: Counter,
    pub config_load_error: Counter,
    /// 0 if the newest rule set was rejected, else 1.
    pub config_last_load_successful: Gauge,
    pub rules_watch_error: Counter,
}

const CONFIG_LOAD_SUCCESS: MetricFamily =
    MetricFamily::counter("config_load_success", "Rule sets loaded", &[]);
const CONFIG_LOAD_ERROR: MetricFamily =
    MetricFamily::counter("config_load_error", "Rule sets rejected", &[]);
const CONFIG_LAST_LOAD_SUCCESSFUL: MetricFamily = MetricFamily::gauge(
    "config_last_load_successful",
    "Whether the newest rule set was accepted (0: rejected; 1: accepted, or none yet)",
    &[],
);
const RULES_WATCH_ERRORS: MetricFamily =
    MetricFamily::counter("rules_watch_errors", "Failures to watch or read rule files", &[]);

impl Metrics {
    /// Creates a registry that lists up to `max_series` series of each metric.
    pub fn new(max_series: usize) -> Metrics {
        let config_last_load_successful = Gauge::default();
        config_last_load_successful.set(1);
        Metrics {
            sources: Mutex::default(),
            listeners: Mutex::default(),
            max_series,
            config_load_success: Counter::default(),
            config_load_error: Counter::default(),
            config_last_load_successful,
            rules_watch_error: Counter::default(),
        }
    }

    /// Adds a source. Its families must not be those of another source.
    pub fn add(&self, source: Arc<dyn MetricSource>) {
        self.sources.lock().push(source);
    }

    /// Adds the metrics of a management server. Call it once.
    pub fn xds(&self) -> XdsMetrics {
        let xds = XdsMetrics::default();
        self.add(Arc::new(xds.clone()));
        xds
    }

    /// Adds the metrics of the overlay. Call it once.
    pub fn overlay(&self) -> OverlayMetrics {
        let overlay = OverlayMetrics::default();
        overlay.last_load_successful.set(1);
        self.add(Arc::new(overlay.clone()));
        overlay
    }

    /// Adds the metrics of the log. Call it once.
    pub fn log(&self, dropped: &Counter) {
        self.add(Arc::new(LogMetrics { dropped: dropped.clone() }));
    }

    /// Adds the metrics of the connections of one listener. Call it once for each.
    pub fn connections(&self, listener: &'static str) -> ConnectionCounts {
        let counts = ConnectionCounts::default();
        self.listeners.lock().push((listener, counts.clone()));
        counts
    }

    /// Lists all metrics.
    pub fn collect(&self, sink: &mut dyn MetricSink) {
        // Cloned, so that a source is not called with a lock held.
        let (sources, listeners) = (self.sources.lock().clone(), self.listeners.lock().clone());
        let mut capped = CappedSink::new(sink, self.max_series);
        let sink: &mut dyn MetricSink = &mut capped;
        sources.iter().for_each(|source| source.collect(sink));
        connections::collect(&listeners, sink);
        sink.counter(CONFIG_LOAD_SUCCESS, self.config_load_success.get());
        sink.counter(CONFIG_LOAD_ERROR, self.config_load_error.get());
        let is_good = self.config_last_load_successful.get();
        sink.gauge(CONFIG_LAST_LOAD_SUCCESSFUL, is_good as f64);
        sink.counter(RULES_WATCH_ERRORS, self.rules_watch_error.get());
        capped.finish();
    }
}

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

/// The metrics of the overlay.
#[derive(Clone, Debug, Default)]
pub struct OverlayMetrics {
    pub load_error: Counter,
    /// 0 if the newest overlay was rejected, else 1.
    pub last_load_successful: Gauge,
    pub failed_patches: Gauge,
}

const OVERLAY_LOAD_ERROR: MetricFamily =
    MetricFamily::counter("overlay_load_error", "Overlays rejected", &[]);
const OVERLAY_LAST_LOAD_SUCCESSFUL: MetricFamily = MetricFamily::gauge(
    "overlay_last_load_successful",
    "Whether the newest overlay was accepted (0: rejected; 1: accepted, or none yet)",
    &[],
);
const OVERLAY_FAILED_PATCHES: MetricFamily = MetricFamily::gauge(
    "overlay_failed_patches",
    "Patches of the overlay that do not fit one of the active rules",
    &[],
);

impl MetricSource for OverlayMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counter(OVERLAY_LOAD_ERROR, self.load_error.get());
        sink.gauge(OVERLAY_LAST_LOAD_SUCCESSFUL, self.last_load_successful.get() as f64);
        sink.gauge(OVERLAY_FAILED_PATCHES, self.failed_patches.get() as f64);
    }
}

#[derive(Debug)]
struct LogMetrics {
    dropped: Counter,
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
