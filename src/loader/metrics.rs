//! The metrics of loading rules and overlays.

use super::Loader;
use crate::metrics::{Counter, Gauge, MetricFamily, MetricSink, MetricSource};

/// The metrics of loading sets of rules.
#[derive(Debug)]
pub(super) struct LoadMetrics {
    pub success: Counter,
    pub error: Counter,
    /// 0 if the newest set was rejected, else 1.
    pub last_load_successful: Gauge,
}

impl Default for LoadMetrics {
    fn default() -> LoadMetrics {
        let (success, error) = Default::default();
        LoadMetrics { success, error, last_load_successful: one() }
    }
}

/// The metrics of loading overlays.
#[derive(Debug)]
pub(super) struct OverlayMetrics {
    pub error: Counter,
    /// 0 if the newest overlay was rejected, else 1.
    pub last_load_successful: Gauge,
    pub failed_patches: Gauge,
}

impl Default for OverlayMetrics {
    fn default() -> OverlayMetrics {
        let (error, failed_patches) = Default::default();
        OverlayMetrics { error, last_load_successful: one(), failed_patches }
    }
}

fn one() -> Gauge {
    let gauge = Gauge::default();
    gauge.set(1);
    gauge
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

impl MetricSource for Loader {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let LoadMetrics { success, error, last_load_successful } = &self.metrics;
        sink.counter(CONFIG_LOAD_SUCCESS, success.get());
        sink.counter(CONFIG_LOAD_ERROR, error.get());
        sink.gauge(CONFIG_LAST_LOAD_SUCCESSFUL, last_load_successful.get() as f64);
        if let Some(overlay) = &self.overlay {
            overlay.metrics.collect(sink);
        }
    }
}

impl OverlayMetrics {
    pub fn collect(&self, sink: &mut dyn MetricSink) {
        let OverlayMetrics { error, last_load_successful, failed_patches } = self;
        sink.counter(OVERLAY_LOAD_ERROR, error.get());
        sink.gauge(OVERLAY_LAST_LOAD_SUCCESSFUL, last_load_successful.get() as f64);
        sink.gauge(OVERLAY_FAILED_PATCHES, failed_patches.get() as f64);
    }
}
