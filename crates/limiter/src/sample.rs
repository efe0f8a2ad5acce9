//! A sample of what may happen often: the first of each second.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Lets a number per second pass.
#[derive(Debug)]
pub(super) struct Sample {
    per_second: u32,
    start: Instant,
    /// A second since the start, and below it in 32 bits the number that passed in that second.
    passed: AtomicU64,
    /// Events suppressed since the last one that passed.
    suppressed: AtomicU64,
}

impl Sample {
    /// Lets up to `per_second` pass; 0: none.
    pub fn new(per_second: u32) -> Sample {
        let (passed, suppressed) = Default::default();
        Sample { per_second, start: Instant::now(), passed, suppressed }
    }

    /// Whether any pass at all.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.per_second > 0
    }

    /// Returns the number suppressed since the last that passed; none if this one is to be
    /// suppressed.
    pub fn pass(&self) -> Option<u64> {
        self.pass_in(self.start.elapsed().as_secs())
    }

    fn pass_in(&self, second: u64) -> Option<u64> {
        let first = second << 32;
        let counted = self.passed.fetch_update(Relaxed, Relaxed, |passed| {
            let passed = passed.max(first);
            (passed - first < u64::from(self.per_second)).then_some(passed + 1)
        });
        match counted {
            Ok(_) => Some(self.suppressed.swap(0, Relaxed)),
            Err(_) => {
                self.suppressed.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_per_second_passes() {
        let sample = Sample::new(2);
        let passed = |second| [(); 3].map(|()| sample.pass_in(second));
        assert_eq!(passed(0), [Some(0), Some(0), None]);
        assert_eq!(passed(1), [Some(1), Some(0), None]);
        assert_eq!(passed(7), [Some(1), Some(0), None]);
        // Another thread may have read the clock before.
        assert_eq!(passed(6), [None; 3]);
        assert!(sample.is_on() && !Sample::new(0).is_on());
    }
}
