//! Values of samples that are kept.

use super::{HistogramSnapshot, SampleValue};

/// A copy of a [`SampleValue`].
#[derive(Debug)]
pub(super) enum OwnedValue {
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
