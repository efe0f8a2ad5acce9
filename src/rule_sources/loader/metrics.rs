//! The metrics of loading rules and overlays (files that patch the rules).

use weir_common::metric_families;
use weir_common::metrics::{Counter, Gauge, MetricSink};

#[derive(Debug, Default)]
pub(super) struct LoadMetrics {
    pub success: Counter,
    pub error: Counter,
    /// 1 if the newest set was rejected, else 0.
    pub newest_rejected: Gauge,
}

#[derive(Debug, Default)]
pub(super) struct OverlayMetrics {
    pub error: Counter,
    pub newest_rejected: Gauge,
    pub failed_patches: Gauge,
}

metric_families! {
    CONFIG_LOAD_SUCCESS: counter("config_load_success", &[]) = "Rule sets loaded";
    CONFIG_LOAD_ERROR: counter("config_load_error", &[]) = "Rule sets rejected";
    CONFIG_LAST_LOAD_SUCCESSFUL: gauge("config_last_load_successful", &[])
        = "Whether the newest rule set was accepted (0: rejected; 1: accepted, or none yet)";
    OVERLAY_LOAD_ERROR: counter("overlay_load_error", &[]) = "Overlays rejected";
    OVERLAY_LAST_LOAD_SUCCESSFUL: gauge("overlay_last_load_successful", &[])
        = "Whether the newest overlay was accepted (0: rejected; 1: accepted, or none yet)";
    OVERLAY_FAILED_PATCHES: gauge("overlay_failed_patches", &[])
        = "Patches of the overlay that do not fit one of the active rules";
}

impl LoadMetrics {
    pub fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counter(CONFIG_LOAD_SUCCESS, self.success.get());
        sink.counter(CONFIG_LOAD_ERROR, self.error.get());
        sink.gauge(CONFIG_LAST_LOAD_SUCCESSFUL, (1 - self.newest_rejected.get()) as f64);
    }
}

impl OverlayMetrics {
    pub fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counter(OVERLAY_LOAD_ERROR, self.error.get());
        sink.gauge(OVERLAY_LAST_LOAD_SUCCESSFUL, (1 - self.newest_rejected.get()) as f64);
        sink.gauge(OVERLAY_FAILED_PATCHES, self.failed_patches.get() as f64);
    }
}
