//! The parameters of a concurrency limit, and what it does with hits in flight.

use crate::algorithm::{Hits, HoldLevels, Levels, Verdict};
use crate::time::Micros;

/// The largest count of hits in flight: integers up to it are exact in every store.
pub(super) const MAX_IN_FLIGHT: u64 = 1 << 52;

/// At most `n` hits in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// The hits that may be in flight.
    pub n: u32,
    /// When hits expire that are not released.
    pub timeout: Micros,
    /// The key of the descriptor's last entry, whose value names the hold.
    pub hold_id: Option<Box<str>>,
}

impl Concurrency {
    /// The bytes of a hold.
    pub const HOLD_BYTES: u64 = 24;
}

/// What differs between hits with ids and without.
pub(super) trait InFlight {
    fn advance(&mut self, limit: &Concurrency, now: Micros);
    fn verdict(&self, limit: &Concurrency, now: Micros, hits: Hits) -> Verdict;
    fn levels(&self, limit: &Concurrency, now: Micros) -> Levels;
    fn room(&self, limit: &Concurrency, hold: u64) -> u64;
    fn charge(&mut self, now: Micros, hits: Hits);
    fn refund(&mut self, now: Micros, hits: Hits);
    fn holds(&self, limit: &Concurrency, now: Micros) -> HoldLevels;
    fn save(&self, out: &mut Vec<u8>);
}
