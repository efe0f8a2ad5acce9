//! Throttles repeated log lines.

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
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last_passed: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    /// Returns a throttle that lets one line pass per interval.
    pub const fn new(interval: Duration) -> Throttle {
        Throttle { interval, state: Mutex::new(State { last_passed: None, suppressed: 0 }) }
    }

    /// Returns how many lines were suppressed since one passed, for the field `suppressed`; none to suppress this one.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    /// [`pass`](Self::pass) at a given time.
    pub fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let due = |last| now.saturating_duration_since(last) >= self.interval;
        if state.last_passed.is_none_or(due) {
            state.last_passed = Some(now);
            return Some(std::mem::take(&mut state.suppressed));
        }
        state.suppressed += 1;
        None
    }
}
