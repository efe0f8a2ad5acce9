//! Waits between attempts, which double.

use std::time::Duration;

use crate::threads::random;

/// The minimum wait, so that what fails immediately is not tried without pause.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// Exponential backoff with jitter.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    pub max: Duration,
    /// Whether to shorten each wait at random by up to half, so that clients do not reconnect to a
    /// restarted server at the same time.
    jitter: bool,
    next: Duration,
}

impl Backoff {
    pub fn new(min: Duration, max: Duration, jitter: bool) -> Backoff {
        let min = min.max(MIN_WAIT);
        Backoff { min, max: max.max(min), jitter, next: min }
    }

    pub fn reset(&mut self) {
        self.next = self.min;
    }

    /// Returns how long to wait now.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.max);
        if self.jitter { wait.mul_f64(0.5 + random() / 2.0) } else { wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_up_to_the_maximum_and_start_over() {
        let mut backoff = Backoff::new(SECOND, SECOND * 5, false);
        let waits: Vec<_> = (0..5).map(|_| backoff.wait().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.wait(), SECOND);
    }

    #[test]
    fn jitter_shortens_waits_by_at_most_half() {
        let mut backoff = Backoff::new(SECOND, SECOND, true);
        let waits: Vec<_> = (0..100).map(|_| backoff.wait()).collect();
        assert!(waits.iter().all(|wait| *wait >= SECOND / 2 && *wait <= SECOND), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }

    #[test]
    fn waits_are_never_shorter_than_the_minimum() {
        assert_eq!(Backoff::new(Duration::ZERO, Duration::ZERO, false).wait(), MIN_WAIT);
        let mut backoff = Backoff::new(SECOND * 9, SECOND, false);
        assert_eq!((backoff.wait(), backoff.wait()), (SECOND * 9, SECOND * 9));
        let mut long = Backoff::new(SECOND, Duration::MAX, false);
        assert!((0..200).map(|_| long.wait()).all(|wait| wait >= SECOND));
    }
}
