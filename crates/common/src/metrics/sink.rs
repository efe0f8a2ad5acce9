//! Families (metrics) and their samples; and the traits of what has metrics, and of exporters, which receive them.

use std::fmt::Debug;

use super::histogram::HistogramSnapshot;

/// The value of every label of the one series that stands for all series beyond a cap.
pub const OTHER: &str = "other";

/// Receives metrics, one family after the other.
pub trait MetricSink {
    /// Starts a family, to which all samples up to the next call belong. It is started once, also without samples.
    fn family(&mut self, family: MetricFamily);

    /// Adds a sample. Its labels have the names and the order of the family's; no other sample of it has the same.
    fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>);
}

/// Has metrics, and lists them when an exporter asks.
pub trait MetricSource: Debug + Send + Sync {
    fn collect(&self, sink: &mut dyn MetricSink);
}

/// The names of the labels of a family.
type Labels = &'static [&'static str];

/// What the samples of one metric have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricFamily {
    /// The name in snake case, without the program's prefix and a counter's `_total`; ends in its unit, as in
    /// `_seconds` and `_bytes`.
    pub name: &'static str,
    /// The text of `HELP`: a noun phrase.
    pub help: &'static str,
    pub metric_type: MetricType,
    pub labels: Labels,
    /// Whether other programs have the metric by the same name, so that it takes no prefix.
    pub is_standard: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

/// The value of a sample, of its family's type.
#[derive(Clone, Copy, Debug)]
pub enum SampleValue<'a> {
    Counter(u64),
    /// A counter of fractions.
    FloatCounter(f64),
    Gauge(f64),
    Histogram(&'a HistogramSnapshot),
}

/// A copy of a [`SampleValue`].
#[derive(Debug)]
pub enum OwnedValue {
    Counter(u64),
    FloatCounter(f64),
    Gauge(f64),
    Histogram(HistogramSnapshot),
}

impl OwnedValue {
    /// Adds another value of the same type.
    pub fn add(&mut self, value: SampleValue<'_>) {
        match (self, value) {
            (OwnedValue::Counter(sum), SampleValue::Counter(value)) => {
                *sum = sum.saturating_add(value);
            }
            (OwnedValue::FloatCounter(sum), SampleValue::FloatCounter(value))
            | (OwnedValue::Gauge(sum), SampleValue::Gauge(value)) => *sum += value,
            (OwnedValue::Histogram(sum), SampleValue::Histogram(value)) => sum.add(value),
            // All samples of a family have its type.
            _ => {}
        }
    }

    pub fn as_value(&self) -> SampleValue<'_> {
        match self {
            OwnedValue::Counter(value) => SampleValue::Counter(*value),
            OwnedValue::FloatCounter(value) => SampleValue::FloatCounter(*value),
            OwnedValue::Gauge(value) => SampleValue::Gauge(*value),
            OwnedValue::Histogram(value) => SampleValue::Histogram(value),
        }
    }
}

impl From<SampleValue<'_>> for OwnedValue {
    fn from(value: SampleValue<'_>) -> OwnedValue {
        match value {
            SampleValue::Counter(value) => OwnedValue::Counter(value),
            SampleValue::FloatCounter(value) => OwnedValue::FloatCounter(value),
            SampleValue::Gauge(value) => OwnedValue::Gauge(value),
            SampleValue::Histogram(value) => OwnedValue::Histogram(value.clone()),
        }
    }
}

impl MetricFamily {
    pub const fn counter(name: &'static str, help: &'static str, labels: Labels) -> MetricFamily {
        MetricFamily { name, help, metric_type: MetricType::Counter, labels, is_standard: false }
    }

    pub const fn gauge(name: &'static str, help: &'static str, labels: Labels) -> MetricFamily {
        MetricFamily { name, help, metric_type: MetricType::Gauge, labels, is_standard: false }
    }

    pub const fn histogram(name: &'static str, help: &'static str, labels: Labels) -> MetricFamily {
        MetricFamily { name, help, metric_type: MetricType::Histogram, labels, is_standard: false }
    }

    /// Returns the family of a metric that other programs have by the same name.
    pub const fn standard(self) -> MetricFamily {
        MetricFamily { is_standard: true, ..self }
    }
}

impl dyn MetricSink + '_ {
    /// Adds a family with one counter, which has no labels.
    pub fn counter(&mut self, family: MetricFamily, value: u64) {
        self.family(family);
        self.sample(&[], SampleValue::Counter(value));
    }

    /// Adds a family with a counter for each value of its one label.
    pub fn counters<'v>(
        &mut self,
        family: MetricFamily,
        counts: impl IntoIterator<Item = (&'v str, u64)>,
    ) {
        self.family(family);
        let [label] = family.labels else { return };
        for (value, count) in counts {
            self.sample(&[(*label, value)], SampleValue::Counter(count));
        }
    }

    /// Adds a family with one gauge, which has no labels.
    pub fn gauge(&mut self, family: MetricFamily, value: f64) {
        self.family(family);
        self.sample(&[], SampleValue::Gauge(value));
    }

    /// Adds a family with one histogram, which has no labels.
    pub fn histogram(&mut self, family: MetricFamily, value: &HistogramSnapshot) {
        self.family(family);
        self.sample(&[], SampleValue::Histogram(value));
    }
}
