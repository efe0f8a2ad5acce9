//! How much is allowed: the arithmetic of one limit, and of all limits of a rule together.
//!
//! Pure: a limit, the state kept for one key, an instant and a number of hits go in; a verdict and
//! the new state come out. No clock, no I/O, no async. Every store answers with the numbers
//! computed here.
//!
//! [`algorithm`] defines what an algorithm is, [`algorithms`] lists them, and [`plan`] charges all
//! limits of a rule.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod algorithm;
pub mod algorithms;
pub mod calendar;
pub mod hit_log;
mod numbers;
pub mod plan;
mod saved;
#[cfg(test)]
mod tests;
mod unit;
mod verdict;

pub use algorithm::Packed;
pub(crate) use algorithm::{Hits, LimitAlgorithm};
pub use algorithms::*;
pub use calendar::Calendar;
pub(crate) use numbers::NumbersChange;
pub use numbers::{Numbers, NumbersError};
pub use plan::{CountError, KeyState, LeasedHits, LimitReading, Op, Plan, State, UpTo};
pub use plan::{Reservation, ReservationOp, Reserve, Undo, smallest_capacity};
pub(crate) use saved::SavedNumbers;
pub use saved::log_copy::{LogCopy, NextPart};
pub use unit::Unit;
pub use verdict::{
    ChargeOutcome, Decision, Fill, HoldLevels, Levels, NearLimit, NearLimits, ReservationResult,
    Source, SpanCount, Verdict,
};

use std::fmt;

use hit_log::HitLog;

/// Whole microseconds: an instant since the Unix epoch, or a duration.
pub type Micros = u64;

/// One second in [`Micros`].
pub const SECOND: Micros = 1_000_000;

/// The longest period of a limit, in seconds: 100 years of 365 days.
pub const MAX_PERIOD_SECONDS: u64 = 100 * 365 * 86_400;

/// The longest wait, in years of 365 days. A limit that takes longer to return to its full
/// allowance is rejected, so that times and expiries stay exact in every store.
pub const MAX_WAIT_YEARS: u64 = 1_000;

/// [`MAX_WAIT_YEARS`] in [`Micros`].
pub const MAX_WAIT: Micros = MAX_WAIT_YEARS * 365 * 86_400 * SECOND;

/// One limit of a rule: an algorithm with its parameters, and how its answers are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Echoed in answers if this is the binding limit; empty for none.
    pub name: Box<str>,
    /// `n`: the hits that one period allows. 0 denies every hit.
    pub requests_per_unit: u32,
    /// The unit shown in answers; none if the limit has no period.
    pub unit: Option<Unit>,
    /// The number of units in a period; at least 1.
    pub unit_multiplier: u32,
    /// Whether hits of a denied descriptor are charged to this limit too.
    pub charge_denied: bool,
    /// Whether the limit only counts: it never denies and never is the binding limit.
    pub shadow_mode: bool,
    pub algorithm: Algorithm,
}

impl Limit {
    /// Returns a fixed window of `multiplier` units aligned to the epoch that counts as the
    /// reference does: hits of denied requests are charged too. `None` if the period is zero or over
    /// 100 years.
    pub fn fixed_window(requests_per_unit: u32, unit: Unit, multiplier: u32) -> Option<Limit> {
        let period = unit.period(multiplier)?;
        Some(Limit {
            name: Box::default(),
            requests_per_unit,
            unit: Some(unit),
            unit_multiplier: multiplier,
            charge_denied: true,
            shadow_mode: false,
            algorithm: Algorithm::FixedWindow(FixedWindow {
                n: requests_per_unit,
                period,
                calendar: None,
            }),
        })
    }

    /// Returns the most hits that it can allow at once: its burst, or its n; 0 if it denies every hit.
    pub fn capacity(&self) -> u64 {
        match self.requests_per_unit {
            0 => 0,
            n => self.algorithm.capacity(n),
        }
    }

    /// Returns how many hits are near n: a part of it, computed with 32-bit floats like in the
    /// reference.
    pub fn near_threshold(&self, ratio: f32) -> f32 {
        self.requests_per_unit as f32 * ratio
    }

    /// Returns whether an advanced state allows hits. Zero hits are a look: denied if the limit is exceeded where
    /// denied hits are charged, else if it is full.
    ///
    /// A limit of 0 denies hits and looks. Only a fixed window that charges denied hits answers a
    /// look as any other limit does, like the reference.
    fn verdict(&self, state: &LimitState, log: &HitLog, now: Micros, hits: Hits) -> Verdict {
        match self.hits_to_check(hits, self.algorithm.answers_looks_if_n_is_zero()) {
            Some(hits) => self.algorithm.verdict(state, log, now, hits),
            None => Verdict::NEVER,
        }
    }

    /// Returns the hits that the algorithm checks; none if they are denied whatever the state.
    fn hits_to_check(&self, hits: Hits, answers_looks_if_n_is_zero: bool) -> Option<Hits> {
        if self.requests_per_unit == 0 {
            let looks = self.charge_denied && answers_looks_if_n_is_zero;
            if hits.count > 0 || !looks {
                return None;
            }
        }
        let count = if hits.count == 0 && !self.charge_denied { 1 } else { hits.count };
        Some(Hits { count, ..hits })
    }

    fn levels(&self, state: &LimitState, log: &HitLog, now: Micros) -> Levels {
        self.bound(self.algorithm.levels(state, log, now))
    }

    /// Returns the largest number of hits that an advanced state allows `hold` to take.
    fn room(&self, state: &LimitState, log: &HitLog, now: Micros, hold: u64) -> u64 {
        match self.requests_per_unit {
            0 => 0,
            _ => self.algorithm.room(state, log, now, hold),
        }
    }

    /// A limit of 0 hits has none left.
    fn bound(&self, mut levels: Levels) -> Levels {
        if self.requests_per_unit == 0 {
            levels.remaining = 0;
        }
        levels
    }

    /// Charges hits, admitted or (with `charge_denied`) denied.
    fn charge(&self, state: &mut LimitState, now: Micros, hits: Hits) {
        if self.is_charged(self.algorithm.counts_at_zero()) {
            self.algorithm.charge(state, now, hits, self.charge_denied);
        }
    }

    /// Charges hits whatever the limit says, as those that it denies with `charge_denied`.
    #[cold]
    fn add(&self, state: &mut LimitState, now: Micros, hits: Hits) {
        if self.is_charged(self.algorithm.counts_at_zero()) {
            self.algorithm.charge(state, now, hits, true);
        }
    }

    fn is_charged(&self, counts_at_zero: bool) -> bool {
        self.requests_per_unit > 0 || counts_at_zero
    }

    /// Returns how full a state of the limit is.
    #[inline]
    fn fill(&self, levels: &Levels) -> Fill {
        match levels.remaining {
            // Denies with or without a state, so nothing is lost with it.
            _ if self.requests_per_unit == 0 => Fill::Low,
            0 => Fill::Full,
            remaining if levels.used >= remaining => Fill::High,
            _ => Fill::Low,
        }
    }

    /// Returns the bytes that a state keeps of single hits, if the limit is full.
    pub fn bytes_of_hits(&self) -> u64 {
        self.algorithm.hit_bytes() * u64::from(self.requests_per_unit)
    }

    /// Returns the share of one of `replicas` replicas.
    fn replica_share(&self, replicas: u32) -> Limit {
        Limit {
            requests_per_unit: self.requests_per_unit.div_ceil(replicas),
            algorithm: self.algorithm.replica_share(self.requests_per_unit, replicas),
            ..self.clone()
        }
    }
}

/// `300 per 15 minutes`; `1 per hour, token_bucket of 10`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.requests_per_unit;
        match (self.unit, self.unit_multiplier) {
            (None, _) => write!(f, "{n} at once")?,
            (Some(unit), 1) => write!(f, "{n} per {}", unit.name())?,
            (Some(unit), multiplier) => write!(f, "{n} per {multiplier} {}s", unit.name())?,
        }
        self.algorithm.write_text(f)?;
        if self.shadow_mode { f.write_str(" (shadow)") } else { Ok(()) }
    }
}

/// Returns the time from `now` until an instant; 0 if it has passed.
fn wait(until: Micros, now: Micros) -> Micros {
    until.saturating_sub(now)
}
