//! Counters, gauges and histograms, and the interface that exporters read them by.
//!
//! Whatever has metrics lists them with a `collect` method for a [`MetricSink`]; Prometheus, StatsD
//! and OTLP are sinks. Recording never waits, and nothing is copied until an exporter asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Receives metrics, one family after the other.
pub trait MetricSink {
    /// Starts a family: all samples up to the next call belong to it. A family is started once.
    fn family(&mut self, family: MetricFamily);

    /// Adds a sample. Its labels are names and values, with the same names for all of a family.
    fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>);
}

/// What the samples of one metric have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricFamily {
    /// In snake case, without the program's prefix and a counter's `_total`; ends in its unit, as in
    /// `_seconds` and `_bytes`.
    pub name: &'static str,
    /// A noun phrase.
    pub help: &'static str,
    pub metric_type: MetricType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// A number that only grows.
    Counter,
    /// A number that may fall.
    Gauge,
    Histogram,
}

/// The value of a sample, of its family's type.
#[derive(Clone, Copy, Debug)]
pub enum SampleValue<'a> {
    Counter(u64),
    Gauge(f64),
    Histogram(&'a HistogramSnapshot),
}

/// A shared counter.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    pub fn inc(&self) {
        self.inc_by(1);
    }

    pub fn inc_by(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A shared gauge.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn dec(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A distribution of numbers in buckets.
#[derive(Debug)]
pub struct Histogram {
    /// The upper bounds of all buckets but the last, in ascending order.
    bounds: &'static [u64],
    /// The numbers in each bucket; one more than `bounds`.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    /// What a recorded 1 is in the unit of the metric: 1e-6 if microseconds are recorded and seconds
    /// are shown.
    scale: f64,
}

/// A copy of a [`Histogram`] in the unit of its metric.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSnapshot {
    /// The upper bounds of all buckets but the last, in ascending order.
    pub bounds: Vec<f64>,
    /// The numbers in each bucket, not cumulative; one more than `bounds`.
    pub counts: Vec<u64>,
    pub sum: f64,
}

impl Histogram {
    /// Creates an empty histogram of integers, which are shown multiplied by `scale`. A bucket
    /// includes its bound.
    pub fn new(bounds: &'static [u64], scale: f64) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0), scale }
    }

    pub fn record(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds.iter().map(|bound| *bound as f64 * self.scale).collect(),
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed) as f64 * self.scale,
        }
    }
}

impl HistogramSnapshot {
    /// The number of recorded values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_include_their_bounds() {
        let histogram = Histogram::new(&[10, 100], 0.5);
        for value in [0, 10, 11, 100, 101, 1_000] {
            histogram.record(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.bounds, [5.0, 50.0]);
        assert_eq!(snapshot.counts, [2, 2, 2]);
        assert_eq!((snapshot.count(), snapshot.sum), (6, 611.0));
    }
}
