//! Throttles repeated log lines.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lets one log line per interval pass, and counts those in between.
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use weir_common::throttle::Throttle;
/// let throttle = Throttle::new(Duration::from_secs(10));
/// let now = Instant::now();
/// assert_eq!(throttle.pass_at(now), Some(0));
/// assert_eq!(throttle.pass_at(now), None);
/// assert_eq!(throttle.pass_at(now + Duration::from_secs(10)), Some(1));
/// ```
#[derive(Debug)]
pub struct Throttle {
    interval: Duration,
    state: Mutex<ThrottleState>,
}

#[derive(Debug, Default)]
struct ThrottleState {
    last_passed: Option<Instant>,
    suppressed: u64,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle::new(Duration::from_secs(10))
    }
}

impl Throttle {
    pub const fn new(interval: Duration) -> Throttle {
        Throttle { interval, state: Mutex::new(ThrottleState { last_passed: None, suppressed: 0 }) }
    }

    /// Returns how many lines were suppressed since one passed, for the field `suppressed`; none to suppress this one.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    pub fn pass_at(&self, now: Instant) -> Option<u64> {
        self.state.lock().pass(now, self.interval)
    }
}

impl ThrottleState {
    fn is_due(&self, now: Instant, interval: Duration) -> bool {
        self.last_passed.is_none_or(|last| now.saturating_duration_since(last) >= interval)
    }

    fn pass(&mut self, now: Instant, interval: Duration) -> Option<u64> {
        if self.is_due(now, interval) {
            self.last_passed = Some(now);
            return Some(std::mem::take(&mut self.suppressed));
        }
        self.suppressed += 1;
        None
    }
}

/// The most keys that are throttled separately.
const MAX_KEYS: usize = 256;

/// Throttles the lines about each key, such as a client's address. Those about keys beyond 256 in an interval are suppressed.
#[derive(Debug)]
pub struct Throttles<K> {
    interval: Duration,
    states: Mutex<HashMap<K, ThrottleState>>,
}

impl<K: Eq + Hash> Throttles<K> {
    pub fn new(interval: Duration) -> Throttles<K> {
        Throttles { interval, states: Mutex::default() }
    }

    /// Returns whether to log a line about a key, as [`Throttle::pass`].
    pub fn pass(&self, key: K) -> Option<u64> {
        self.pass_at(key, Instant::now())
    }

    fn pass_at(&self, key: K, now: Instant) -> Option<u64> {
        let mut states = self.states.lock();
        if states.len() >= MAX_KEYS && !states.contains_key(&key) {
            states.retain(|_, state| !state.is_due(now, self.interval));
            if states.len() >= MAX_KEYS {
                return None;
            }
        }
        states.entry(key).or_default().pass(now, self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_a_line_per_interval_and_keys_are_bounded() {
        let (minute, now) = (Duration::from_secs(60), Instant::now());
        let throttles = Throttles::new(minute);
        assert_eq!(
            [1, 2, 1, 1].map(|key| throttles.pass_at(key, now)),
            [Some(0), Some(0), None, None]
        );
        assert_eq!(throttles.pass_at(1, now + minute), Some(2));
        let passed =
            (2..1_000).filter(|key| throttles.pass_at(*key, now + minute).is_some()).count();
        assert_eq!((passed, throttles.states.lock().len()), (MAX_KEYS - 1, MAX_KEYS));
        assert_eq!(throttles.pass_at(5_000, now + 2 * minute), Some(0));
        assert_eq!(throttles.states.lock().len(), 1);
    }
}
