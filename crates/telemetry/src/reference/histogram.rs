//! Changes the unit and the buckets of a histogram: the `page` may need others than weir has.

use weir_common::metrics::HistogramSnapshot;

/// Bounds that differ by less are the same: they are products of decimal fractions.
const EPSILON: f64 = 1e-9;

pub fn scaled(histogram: &HistogramSnapshot, factor: f64) -> HistogramSnapshot {
    HistogramSnapshot {
        bounds: histogram.bounds.iter().map(|bound| bound * factor).collect(),
        counts: histogram.counts.clone(),
        sum: histogram.sum * factor,
        exemplars: Vec::new(),
    }
}

/// Returns the histogram with other bounds. The values of a bucket are taken to be spread evenly in it.
pub fn with_bounds(histogram: &HistogramSnapshot, bounds: &[f64]) -> HistogramSnapshot {
    let total = histogram.count();
    let mut below = 0;
    let mut counts = Vec::with_capacity(bounds.len() + 1);
    for bound in bounds {
        let cumulative = cumulative(histogram, *bound);
        counts.push(cumulative - below);
        below = cumulative;
    }
    counts.push(total - below);
    HistogramSnapshot { bounds: bounds.to_vec(), counts, sum: histogram.sum, exemplars: Vec::new() }
}

/// Returns the number of values up to a bound. It never falls while values are added.
fn cumulative(histogram: &HistogramSnapshot, bound: f64) -> u64 {
    let (mut sum, mut lower) = (0, 0.0);
    for (upper, count) in histogram.bounds.iter().zip(&histogram.counts) {
        if *upper > bound * (1.0 + EPSILON) {
            let share = ((bound - lower) / (upper - lower)).clamp(0.0, 1.0);
            // What rounding lost is not a value less.
            return sum + (*count as f64 * share + EPSILON) as u64;
        }
        sum += count;
        lower = *upper;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_common::metrics;

    fn quantile(histogram: &HistogramSnapshot, q: f64) -> Option<f64> {
        metrics::quantile(&histogram.bounds, &histogram.counts, q)
    }

    fn histogram() -> HistogramSnapshot {
        let bounds = vec![0.001, 0.005, 0.01, 0.1];
        HistogramSnapshot {
            bounds,
            counts: vec![10, 20, 30, 40, 5],
            sum: 7.0,
            exemplars: Vec::new(),
        }
    }

    #[test]
    fn finer_buckets_are_summed() {
        // 0.005 s is 0.005 thousandths of a thousand times as much.
        let same = scaled(&scaled(&histogram(), 1_000.0), 0.001);
        let coarse = with_bounds(&same, &[0.005, 0.1]);
        assert_eq!((coarse.counts, coarse.bounds), (vec![30, 70, 5], vec![0.005, 0.1]));
        assert_eq!(coarse.sum, 7.0);
    }

    #[test]
    fn values_are_spread_evenly_where_a_bound_is_missing() {
        let other = with_bounds(&histogram(), &[0.000_5, 0.003, 0.055, 1.0]);
        assert_eq!(other.counts, [5, 15, 60, 20, 5]);
        assert_eq!(other.count(), histogram().count());
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&histogram(), 0.0), Some(0.0));
        assert!((quantile(&histogram(), 10.0 / 105.0).unwrap() - 0.001).abs() < 1e-12);
        assert!((quantile(&histogram(), 45.0 / 105.0).unwrap() - 0.007_5).abs() < 1e-12);
        assert_eq!(quantile(&histogram(), 1.0), Some(0.1));
        let empty = HistogramSnapshot {
            bounds: vec![1.0],
            counts: vec![0, 0],
            sum: 0.0,
            exemplars: Vec::new(),
        };
        assert_eq!(quantile(&empty, 0.5), None);
    }
}
