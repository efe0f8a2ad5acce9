//! Quantiles of numbers that are known by their buckets.

/// Returns the quantile `q`, in the unit of the bounds; none if there are no numbers. It is interpolated
/// within its bucket, as Prometheus' `histogram_quantile` does; numbers above the last bound count as
/// that bound.
pub(super) fn quantile(bounds: &[f64], counts: &[u64], q: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    let last = bounds.last().filter(|_| total > 0)?;
    let rank = q * total as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (bound, count) in bounds.iter().zip(counts) {
        let count = *count as f64;
        if count > 0.0 && below + count >= rank {
            return Some(lower + (bound - lower) * ((rank - below) / count));
        }
        (below, lower) = (below + count, *bound);
    }
    Some(*last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: [f64; 3] = [1.0, 2.0, 4.0];

    #[test]
    fn quantiles_are_interpolated() {
        let of = |counts: [u64; 4], q| quantile(&BOUNDS, &counts, q);
        assert_eq!(of([0; 4], 0.5), None);
        assert_eq!(of([10, 0, 0, 0], 0.5), Some(0.5));
        assert_eq!(of([0, 10, 0, 0], 0.5), Some(1.5));
        assert_eq!(of([50, 0, 50, 0], 0.99), Some(2.0 + 2.0 * 0.98));
        assert_eq!(of([1, 0, 0, 99], 0.99), Some(4.0));
        assert_eq!(quantile(&[], &[5], 0.5), None);
    }

    proptest! {
        /// The quantile is in the bucket of the number with that rank.
        #[test]
        fn a_quantile_is_in_the_bucket_of_its_number(
            numbers in prop::collection::vec(0.0..4.0f64, 1..100),
            q in 0.01..1.0f64,
        ) {
            let bucket = |number: f64| BOUNDS.partition_point(|bound| *bound < number);
            let mut counts = [0; 4];
            numbers.iter().for_each(|number| counts[bucket(*number)] += 1);
            let mut sorted = numbers;
            sorted.sort_by(f64::total_cmp);
            let rank = (q * sorted.len() as f64).ceil() as usize;
            let found = quantile(&BOUNDS, &counts, q).unwrap();
            let (bucket, lower) = (bucket(sorted[rank - 1]), [0.0, 1.0, 2.0]);
            prop_assert!(found >= lower[bucket] && found <= BOUNDS[bucket], "{}", found);
        }
    }
}
