//! What time it is, as an argument: the service runs on the system's clock, tests on their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::limit::Micros;

/// Tells the time.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// Microseconds since the Unix epoch.
    fn now(&self) -> Micros;
}

/// The system's time when this was made, carried on by the monotonic clock: later steps of the
/// system's clock are not seen, so nothing is admitted twice or blocked for long because of one.
#[derive(Debug)]
pub struct SystemClock {
    epoch: Micros,
    started: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn new() -> SystemClock {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SystemClock { epoch: epoch.as_micros() as Micros, started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        self.epoch + self.started.elapsed().as_micros() as Micros
    }
}

/// The system's time as it is, with all its steps: for what others tell by theirs.
#[derive(Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_micros() as Micros
    }
}

/// A clock that stands until it is set.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn new(now: Micros) -> ManualClock {
        ManualClock(AtomicU64::new(now))
    }

    pub fn set(&self, now: Micros) {
        self.0.store(now, Ordering::Relaxed);
    }

    pub fn advance(&self, by: Micros) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        self.0.load(Ordering::Relaxed)
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Micros {
        (**self).now()
    }
}
