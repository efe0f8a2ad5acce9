//! When the disk store's writing thread saves changes, rests, retries after an error, and ends.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use weir_common::backoff::Backoff;
use weir_common::throttle::Throttle;

/// The wait after an error, which doubles up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub sync: Duration,
    /// How often a directory that is mostly obsolete is compacted (replaced by a snapshot), however little was written.
    pub compact: Duration,
    /// The obsolete bytes without which a directory is not compacted.
    pub min_obsolete_bytes: u64,
}

#[derive(Debug)]
pub struct Retry {
    pub backoff: Backoff,
    pub at: Instant,
    pub log: Throttle,
}

impl Retry {
    pub fn new() -> Retry {
        let backoff = Backoff::new(MIN_BACKOFF, MAX_BACKOFF, false);
        Retry { backoff, at: Instant::now(), log: Throttle::default() }
    }

    pub fn back_off(&mut self) -> Duration {
        let wait = self.backoff.wait();
        self.at = Instant::now() + wait;
        wait
    }
}

/// The time after which the thread rests, and for how long: while it copies much, it takes up to a fifth of a
/// processor. Without rests, requests wait some milliseconds until the system takes the processor from it.
const WORK: Duration = Duration::from_micros(50);
const REST: Duration = Duration::from_micros(200);

/// The command to save all changes and end; sends when that is done.
pub type Finish = oneshot::Sender<()>;

#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The time is up: save what is due.
    Work,
    /// Save everything and end.
    Finish,
    /// End: the store was dropped.
    Dropped,
}

/// The command to end, for which the thread also looks while it works.
#[derive(Debug)]
pub struct Commands {
    receiver: Receiver<Finish>,
    pub finishing: Option<Finish>,
    rested: Instant,
}

impl Commands {
    pub fn new(receiver: Receiver<Finish>) -> Commands {
        Commands { receiver, finishing: None, rested: Instant::now() }
    }

    /// Waits for the command to end, up to a timeout.
    pub fn wait(&mut self, timeout: Duration) -> Next {
        if self.finishing.is_none() {
            match self.receiver.recv_timeout(timeout) {
                Ok(done) => self.finishing = Some(done),
                Err(RecvTimeoutError::Timeout) => return Next::Work,
                Err(RecvTimeoutError::Disconnected) => return Next::Dropped,
            }
        }
        Next::Finish
    }

    /// Rests if it is time to, but not if the thread is to end. To be called after each piece of work.
    pub fn rest(&mut self) {
        if self.rested.elapsed() >= WORK {
            self.wait(REST);
            self.rested = Instant::now();
        }
    }
}
