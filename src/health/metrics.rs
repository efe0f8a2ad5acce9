//! The metrics of readiness.

use super::{Health, NotServing};
use weir_common::metrics::{MetricFamily, MetricSink, MetricSource, SampleValue};

const READY: MetricFamily =
    MetricFamily::gauge("ready", "Whether health reports serving (1) or not (0)", &[]);
const NOT_READY: MetricFamily = MetricFamily::gauge(
    "not_ready",
    "Whether a reason keeps health from reporting serving (1) or not (0), by reason",
    &["reason"],
);

impl MetricSource for Health {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let reasons = self.reasons();
        let gauge = |value: bool| f64::from(u8::from(value));
        sink.gauge(READY, gauge(reasons.is_empty()));
        sink.family(NOT_READY);
        for reason in NotServing::ALL {
            let value = SampleValue::Gauge(gauge(reasons.contains(&reason)));
            sink.sample(&[("reason", reason.text())], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The samples that are not 0: name and reason.
    #[derive(Default)]
    struct Samples {
        family: &'static str,
        set: Vec<(&'static str, String)>,
    }

    impl MetricSink for Samples {
        fn family(&mut self, family: MetricFamily) {
            self.family = family.name;
        }

        fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>) {
            if matches!(value, SampleValue::Gauge(value) if value != 0.0) {
                let reason = labels.first().map(|(_, reason)| (*reason).to_owned());
                self.set.push((self.family, reason.unwrap_or_default()));
            }
        }
    }

    #[test]
    fn the_reasons_are_those_of_the_page_and_of_readyz() {
        let health = Health::new(true, false);
        let set = || {
            let mut samples = Samples::default();
            health.collect(&mut samples);
            samples.set
        };
        let reasons = ["no rules are loaded", "redis has not answered yet"];
        assert_eq!(set(), reasons.map(|reason| ("not_ready", reason.to_owned())));
        health.store_answers();
        health.rules_loaded(1);
        assert_eq!(set(), [("ready", String::new())]);
        let page = include_str!("../../docs/health.md");
        for reason in NotServing::ALL {
            assert!(page.contains(&format!("| `{}` |", reason.text())), "{reason}");
        }
    }
}
