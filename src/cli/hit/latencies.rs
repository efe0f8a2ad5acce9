//! Latencies in a bounded space, exact to 3%.

use std::time::Duration;

/// Bits of a latency that select its bucket, after the highest one.
const DIGITS: u32 = 5;

/// Counts of latencies, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    counts: Vec<u64>,
    total: u64,
    max: Duration,
}

impl Latencies {
    pub fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let bucket = bucket(micros);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.total += 1;
        self.max = self.max.max(latency);
    }

    pub fn max(&self) -> Duration {
        self.max
    }

    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the latency that this share of requests, in percent, does not exceed.
    pub fn percentile(&self, percent: u64) -> Duration {
        let rank = (u128::from(self.total) * u128::from(percent)).div_ceil(100);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += u128::from(*count);
            seen >= rank
        });
        at.map_or(self.max, |bucket| Duration::from_micros(upper(bucket)).min(self.max))
    }
}

fn bucket(micros: u64) -> usize {
    let shift = (u64::BITS - micros.leading_zeros()).saturating_sub(DIGITS + 1);
    ((u64::from(shift) << DIGITS) + (micros >> shift)) as usize
}

/// Returns the largest number of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket >> DIGITS).saturating_sub(1);
    let digits = u128::from(bucket - (shift << DIGITS));
    u64::try_from(((digits + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let mut latencies = Latencies::default();
        for micros in 1..=60 {
            latencies.record(Duration::from_micros(micros));
        }
        assert_eq!(latencies.percentile(50), Duration::from_micros(30));
        assert_eq!(latencies.percentile(99), Duration::from_micros(60));
        assert_eq!(latencies.max(), Duration::from_micros(60));
        assert_eq!(Latencies::default().percentile(50), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn buckets_are_ordered_and_narrow(micros in any::<u64>()) {
            let upper = upper(bucket(micros));
            prop_assert!(upper >= micros && upper - micros <= micros / 32);
            prop_assert!(micros == 0 || bucket(micros - 1) <= bucket(micros));
            prop_assert!(upper == u64::MAX || bucket(upper + 1) == bucket(micros) + 1);
        }
    }
}
