//! When changes are written, and when that is tried again after an error.

use std::time::{Duration, Instant};

use weir_common::throttle::Throttle;

/// The wait after an error, which doubles up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// How often errors are logged.
pub const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// When changes are written, and when a directory is compacted.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The time between syncs.
    pub sync: Duration,
    /// The time after which a directory that is mostly obsolete is compacted, however little was
    /// written.
    pub compact: Duration,
    /// The obsolete bytes without which a directory is not compacted.
    pub min_obsolete_bytes: u64,
}

/// When something is tried again.
#[derive(Debug)]
pub struct Retry {
    /// The wait that follows the next error.
    backoff: Duration,
    pub at: Instant,
    pub log: Throttle,
}

impl Retry {
    pub fn new() -> Retry {
        Retry { backoff: MIN_BACKOFF, at: Instant::now(), log: Throttle::new(LOG_INTERVAL) }
    }

    /// Sets when to try again. Returns the wait.
    pub fn back_off(&mut self) -> Duration {
        let wait = self.backoff;
        self.at = Instant::now() + wait;
        self.backoff = (wait * 2).min(MAX_BACKOFF);
        wait
    }

    /// Starts over with short waits.
    pub fn reset(&mut self) {
        self.backoff = MIN_BACKOFF;
    }
}
