//! What the limits of a plan have counted for one key, and how it is saved.

use crate::algorithms::LimitState;
use crate::hit_log::HitLog;
use crate::saved::{self, SavedNumbers};

/// The state of all limits of a plan for one key. The default is that of a key never seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub(super) limits: Box<[LimitState]>,
    pub(super) log: HitLog,
}

impl State {
    /// Returns the state of all limits of a plan, in their order, with the log of its sliding_log limits.
    pub fn new(limits: Box<[LimitState]>, log: HitLog) -> State {
        State { limits, log }
    }

    /// Returns the log that the sliding_log limits share.
    pub fn log(&self) -> &HitLog {
        &self.log
    }

    /// Appends the state as it is saved, without its log, which follows.
    pub fn save_limits(&self, out: &mut Vec<u8>) {
        saved::put(out, self.limits.len() as u64);
        for limit in &self.limits {
            limit.save(out);
        }
    }

    /// Reads a saved state with its log; none if no state is written like that.
    pub fn restore(bytes: &[u8]) -> Option<State> {
        let mut numbers = SavedNumbers(bytes);
        let len = numbers.next_len()?;
        let limits = (0..len).map(|_| LimitState::restore(&mut numbers)).collect::<Option<_>>()?;
        let log = HitLog::restore(&mut numbers)?;
        numbers.is_empty().then_some(State { limits, log })
    }
}
