//! The metrics of controls.

use std::sync::atomic::Ordering;

use super::handle::Controls;
use weir_common::metric_families;
use weir_common::metrics::{MetricSink, MetricSource, SampleValue};

metric_families! {
    CONTROLS: gauge("controls", &["action"]) = "Active controls, by action";
    UNSHARED: gauge("controls_unshared", &[]) = "Changes of controls that other replicas do not have yet";
    EXCHANGE_FAILURES: counter("controls_exchange_failures", &[]) = "Failed exchanges of controls with the store";
    MISSING: gauge("controls_missing", &[])
        = "Damaged files of controls that nobody has looked at: blocks may be missing";
    UNKEPT: gauge("controls_unkept", &[])
        = "Whether controls.file lacks changes because it cannot be written: a restart loses them";
}

impl MetricSource for Controls {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let controls = self.list();
        sink.family(CONTROLS);
        for action in ["block", "allow", "limit"] {
            let count = controls.iter().filter(|control| control.action.name() == action).count();
            sink.sample(&[("action", action)], SampleValue::Gauge(count as f64));
        }
        sink.gauge(UNSHARED, self.unshared() as f64);
        sink.gauge(UNKEPT, f64::from(self.unkept().is_some()));
        sink.counter(EXCHANGE_FAILURES, self.failures.load(Ordering::Relaxed));
        sink.gauge(MISSING, self.damaged_files().count() as f64);
    }
}
