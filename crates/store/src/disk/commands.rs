//! The command to end, for which the thread also looks while it works.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The time after which the thread rests, and for how long: while it copies much, it takes up to a
/// fifth of a processor. Without rests, requests wait some milliseconds until the system takes the
/// processor from it.
const WORK: Duration = Duration::from_micros(50);
const REST: Duration = Duration::from_micros(200);

/// The time between two parts of a long log. Without it, requests would find the shard locked most of
/// the time, and a thread that sleeps until it is unlocked wakes up late on a busy machine.
const PART_PAUSE: Duration = Duration::from_micros(50);

/// What the thread is asked to do.
#[derive(Debug)]
pub enum Command {
    /// Saves all changes and ends; then sends.
    Finish(oneshot::Sender<()>),
}

/// What the thread does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The time is up: save what is due.
    Work,
    /// Save everything and end.
    Finish,
    /// End: the store was dropped.
    Dropped,
}

#[derive(Debug)]
pub struct Commands {
    receiver: Receiver<Command>,
    /// The sender to notify at the end.
    finishing: Option<oneshot::Sender<()>>,
    rested: Instant,
}

impl Commands {
    pub fn new(receiver: Receiver<Command>) -> Commands {
        Commands { receiver, finishing: None, rested: Instant::now() }
    }

    /// Waits for the command to end, up to a timeout.
    pub fn wait(&mut self, timeout: Duration) -> Next {
        if self.finishing.is_none() {
            match self.receiver.recv_timeout(timeout) {
                Ok(Command::Finish(done)) => self.finishing = Some(done),
                Err(RecvTimeoutError::Timeout) => return Next::Work,
                Err(RecvTimeoutError::Disconnected) => return Next::Dropped,
            }
        }
        Next::Finish
    }

    /// Returns whether the thread is to end as soon as possible.
    pub fn is_finishing(&mut self) -> bool {
        matches!(self.wait(Duration::ZERO), Next::Finish)
    }

    /// Rests if it is time to, but not if the thread is to end. To be called after each piece of work.
    pub fn rest(&mut self) {
        if self.rested.elapsed() >= WORK {
            self.wait(REST);
            self.rested = Instant::now();
        }
    }

    /// Pauses between two parts of a long log, but not if the thread is to end.
    pub fn pause(&mut self) {
        self.wait(PART_PAUSE);
    }

    /// Returns the sender to notify at the end.
    pub fn take_finishing(&mut self) -> Option<oneshot::Sender<()>> {
        self.finishing.take()
    }
}
