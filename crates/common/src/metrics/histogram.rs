//! Histograms for metrics, such as latencies: recorded numbers are counted in buckets, with traces as exemplars.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::spans::TraceIds;

/// The bounds of latencies, in microseconds.
const LATENCY_BOUNDS: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

#[derive(Debug)]
pub struct Histogram {
    /// The upper bounds of all buckets but the last, in ascending order.
    bounds: &'static [u64],
    /// The numbers in each bucket; one more than `bounds`.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    /// How many recorded units are one of the metric's: 1e6 where microseconds are recorded and seconds are shown.
    per_unit: f64,
    /// The last exemplar of each bucket; empty if the histogram has none.
    exemplars: Box<[Mutex<Option<Recorded>>]>,
}

/// A value that was recorded, and the span that explains it.
type Recorded = (u64, TraceIds);

/// A value of a histogram that a trace explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    pub bucket: usize,
    pub value: f64,
    pub ids: TraceIds,
}

/// A copy of a [`Histogram`] in the unit of its metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramSnapshot {
    /// The upper bounds of all buckets but the last, in ascending order.
    pub bounds: Vec<f64>,
    /// The numbers in each bucket, not cumulative; one more than `bounds`.
    pub counts: Vec<u64>,
    pub sum: f64,
    /// The exemplars, at most one for each bucket.
    pub exemplars: Vec<Exemplar>,
}

impl Default for Histogram {
    /// Creates an empty histogram of latencies, in microseconds and shown in seconds, with room for exemplars.
    fn default() -> Histogram {
        Histogram::new(LATENCY_BOUNDS, 1e6).with_exemplars()
    }
}

impl Histogram {
    /// Creates an empty histogram of integers, which are shown divided by `per_unit`. A bucket includes its bound.
    pub fn new(bounds: &'static [u64], per_unit: f64) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0), per_unit, exemplars: Box::default() }
    }

    /// Returns the histogram with room for an exemplar of each bucket.
    pub fn with_exemplars(self) -> Histogram {
        let exemplars = self.counts.iter().map(|_| Mutex::default()).collect();
        Histogram { exemplars, ..self }
    }

    fn bucket(&self, value: u64) -> usize {
        self.bounds.partition_point(|bound| *bound < value)
    }

    /// Makes a value, which is recorded too, the exemplar of its bucket, if the histogram has exemplars.
    pub fn set_exemplar(&self, value: u64, ids: TraceIds) {
        if let Some(exemplar) = self.exemplars.get(self.bucket(value)) {
            *exemplar.lock() = Some((value, ids));
        }
    }

    /// Records a value, in the histogram's integer unit.
    pub fn record(&self, value: u64) {
        self.record_times(value, 1);
    }

    pub fn record_times(&self, value: u64, times: u64) {
        let bucket = self.bucket(value);
        self.counts[bucket].fetch_add(times, Ordering::Relaxed);
        self.sum.fetch_add(value.saturating_mul(times), Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> HistogramSnapshot {
        let exemplars = self.exemplars.iter().enumerate().filter_map(|(bucket, exemplar)| {
            let (value, ids) = (*exemplar.lock())?;
            Some(Exemplar { bucket, value: value as f64 / self.per_unit, ids })
        });
        HistogramSnapshot {
            // Dividing gives the number nearest to the decimal one, which multiplying does not.
            bounds: self.bounds.iter().map(|bound| *bound as f64 / self.per_unit).collect(),
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed) as f64 / self.per_unit,
            exemplars: exemplars.collect(),
        }
    }
}

impl HistogramSnapshot {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the values of another histogram with the same bounds, but not its exemplars.
    pub fn add(&mut self, other: &HistogramSnapshot) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }
}

/// Returns the quantile `q`, in the unit of the bounds; none if there are no numbers. It is interpolated
/// within its bucket, as Prometheus' `histogram_quantile` does; numbers above the last bound count as
/// that bound.
pub fn quantile(bounds: &[f64], counts: &[u64], q: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    let last = bounds.last().filter(|_| total > 0)?;
    let rank = q * total as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (bound, count) in bounds.iter().zip(counts) {
        let count = *count as f64;
        if count > 0.0 && below + count >= rank {
            return Some(lower + (bound - lower) * (rank - below) / count);
        }
        (below, lower) = (below + count, *bound);
    }
    Some(*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_include_their_bounds() {
        let histogram = Histogram::new(&[10, 100], 2.0);
        for value in [0, 10, 11, 100, 101, 1_000] {
            histogram.record(value);
        }
        let mut snapshot = histogram.snapshot();
        assert_eq!(snapshot.bounds, [5.0, 50.0]);
        assert_eq!(snapshot.counts, [2, 2, 2]);
        assert_eq!((snapshot.count(), snapshot.sum), (6, 611.0));
        snapshot.add(&snapshot.clone());
        assert_eq!((snapshot.count(), snapshot.sum), (12, 1222.0));
    }

    #[test]
    fn each_bucket_has_its_last_exemplar() {
        let ids = |span| TraceIds { trace: 1, span };
        let histogram = Histogram::new(&[10, 100], 2.0).with_exemplars();
        for (value, span) in [(4, 1), (1_000, 2), (10, 3)] {
            histogram.set_exemplar(value, ids(span));
        }
        let wanted = [
            Exemplar { bucket: 0, value: 5.0, ids: ids(3) },
            Exemplar { bucket: 2, value: 500.0, ids: ids(2) },
        ];
        assert_eq!(histogram.snapshot().exemplars, wanted);
        let without = Histogram::new(&[10], 1.0);
        without.set_exemplar(1, ids(1));
        assert!(without.snapshot().exemplars.is_empty());
    }

    #[test]
    fn a_value_can_be_recorded_several_times() {
        let histogram = Histogram::new(&[10], 1.0);
        histogram.record_times(7, 3);
        assert_eq!((histogram.snapshot().counts, histogram.snapshot().sum), (vec![3, 0], 21.0));
    }
}
