//! Bounds how many series (sets of label values) of each metric are exported (the setting `metrics.max_series`).

use super::sink::{MetricFamily, MetricSink, OTHER, OwnedValue, SampleValue};

/// A sink that passes on up to `max` series of each family (metric), and the sum of all others as one more series with
/// [`OTHER`] for each label. The order of a family's samples decides which ones are kept.
pub struct CappedSink<'a> {
    inner: &'a mut dyn MetricSink,
    max: usize,
    family: Option<MetricFamily>,
    passed: usize,
    folded: u64,
    other: Option<OwnedValue>,
    /// The families with series beyond the cap, and how many.
    folded_series: Vec<(&'static str, u64)>,
}

const FOLDED: MetricFamily = MetricFamily::gauge(
    "metrics_folded_series",
    "Series beyond metrics.max_series, shown as one with the labels `other`, by metric",
    &["metric"],
);

impl<'a> CappedSink<'a> {
    pub fn new(inner: &'a mut dyn MetricSink, max: usize) -> CappedSink<'a> {
        let (folded_series, family) = (Vec::new(), None);
        CappedSink { inner, max, family, passed: 0, folded: 0, other: None, folded_series }
    }

    /// Ends the last family, and adds one with the numbers of series that were folded.
    pub fn finish(mut self) {
        self.end_family();
        self.inner.family(FOLDED);
        for (metric, folded) in &self.folded_series {
            self.inner.sample(&[("metric", metric)], SampleValue::Gauge(*folded as f64));
        }
    }

    fn end_family(&mut self) {
        let Some(family) = self.family.take() else { return };
        if let Some(other) = self.other.take() {
            let labels: Vec<(&str, &str)> =
                family.labels.iter().map(|name| (*name, OTHER)).collect();
            self.inner.sample(&labels, other.as_value());
        }
        if self.folded > 0 {
            self.folded_series.push((family.name, self.folded));
        }
        (self.passed, self.folded) = (0, 0);
    }
}

impl MetricSink for CappedSink<'_> {
    fn family(&mut self, family: MetricFamily) {
        self.end_family();
        self.family = Some(family);
        self.inner.family(family);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>) {
        // A source may have folded some of its series already.
        let is_other = !labels.is_empty() && labels.iter().all(|(_, value)| *value == OTHER);
        if !is_other && (self.passed < self.max || labels.is_empty()) {
            self.passed += 1;
            return self.inner.sample(labels, value);
        }
        self.folded += u64::from(!is_other);
        match &mut self.other {
            Some(other) => other.add(value),
            None => self.other = Some(value.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{HistogramSnapshot, MergedFamilies};

    const HITS: MetricFamily = MetricFamily::counter("hits", "Hits", &["domain", "rule"]);
    const TIME: MetricFamily = MetricFamily::histogram("time_seconds", "Time", &["method"]);

    #[test]
    fn series_beyond_the_cap_are_one_with_their_sum() {
        let mut families = MergedFamilies::default();
        let mut capped = CappedSink::new(&mut families, 2);
        capped.family(HITS);
        for (rule, hits) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
            capped.sample(&[("domain", "shop"), ("rule", rule)], SampleValue::Counter(hits));
        }
        let other = [("domain", OTHER), ("rule", OTHER)];
        capped.sample(&other, SampleValue::Counter(10));
        capped.family(TIME);
        for (method, counts) in [("a", [1, 0]), ("b", [1, 0]), ("c", [2, 3]), ("d", [4, 5])] {
            let snapshot = HistogramSnapshot {
                bounds: vec![1.0],
                counts: counts.into(),
                sum: 0.5,
                exemplars: Vec::new(),
            };
            capped.sample(&[("method", method)], SampleValue::Histogram(&snapshot));
        }
        capped.finish();
        let lines = families.lines();
        assert_eq!(
            lines,
            [
                r#"hits [("domain", "shop"), ("rule", "a")] 1"#,
                r#"hits [("domain", "shop"), ("rule", "b")] 2"#,
                r#"hits [("domain", "other"), ("rule", "other")] 17"#,
                r#"time_seconds [("method", "a")] [1, 0] 0.5"#,
                r#"time_seconds [("method", "b")] [1, 0] 0.5"#,
                r#"time_seconds [("method", "other")] [6, 8] 1"#,
                r#"metrics_folded_series [("metric", "hits")] 2"#,
                r#"metrics_folded_series [("metric", "time_seconds")] 2"#,
            ]
        );
    }

    #[test]
    fn a_series_of_the_source_for_all_others_stays_the_only_one() {
        let mut families = MergedFamilies::default();
        let mut capped = CappedSink::new(&mut families, 1);
        capped.family(HITS);
        capped.sample(&[("domain", OTHER), ("rule", OTHER)], SampleValue::Counter(5));
        capped.sample(&[("domain", "shop"), ("rule", "a")], SampleValue::Counter(1));
        capped.finish();
        assert_eq!(
            families.lines(),
            [
                r#"hits [("domain", "shop"), ("rule", "a")] 1"#,
                r#"hits [("domain", "other"), ("rule", "other")] 5"#,
            ]
        );
    }
}
