//! How long to wait before the next try.

use std::time::Duration;

use crate::random::random;

/// No wait is shorter: a server that ends every stream at once is not to be called without pause.
const SHORTEST: Duration = Duration::from_millis(10);

/// Waits that double, from the least to the most.
#[derive(Clone, Debug)]
pub struct Backoff {
    least: Duration,
    most: Duration,
    /// Whether a wait is any from half of what it would be, so that not all come back at once when
    /// a server does.
    jitter: bool,
    next: Duration,
}

impl Backoff {
    pub fn new(least: Duration, most: Duration, jitter: bool) -> Backoff {
        let least = least.max(SHORTEST);
        Backoff { least, most: most.max(least), jitter, next: least }
    }

    /// Begins again with the least.
    pub fn reset(&mut self) {
        self.next = self.least;
    }

    /// How long to wait this time.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.most);
        if self.jitter { wait.mul_f64(0.5 + random() / 2.0) } else { wait }
    }

    /// The longest wait there is.
    pub fn most(&self) -> Duration {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_up_to_the_most_and_begin_again() {
        let mut backoff = Backoff::new(SECOND, SECOND * 5, false);
        let waits: Vec<_> = (0..5).map(|_| backoff.wait().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.wait(), SECOND);
    }

    #[test]
    fn jitter_takes_away_half_at_most() {
        let mut backoff = Backoff::new(SECOND, SECOND, true);
        let waits: Vec<_> = (0..100).map(|_| backoff.wait()).collect();
        assert!(waits.iter().all(|wait| *wait >= SECOND / 2 && *wait <= SECOND), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }

    #[test]
    fn there_is_always_a_pause_and_the_most_is_no_less_than_the_least() {
        assert_eq!(Backoff::new(Duration::ZERO, Duration::ZERO, false).wait(), SHORTEST);
        let mut backoff = Backoff::new(SECOND * 9, SECOND, false);
        assert_eq!((backoff.wait(), backoff.wait()), (SECOND * 9, SECOND * 9));
        let mut long = Backoff::new(SECOND, Duration::MAX, false);
        assert!((0..200).map(|_| long.wait()).all(|wait| wait >= SECOND));
    }
}
