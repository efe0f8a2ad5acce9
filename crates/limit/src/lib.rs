//! How much is allowed: the arithmetic of one limit, and of all limits of a rule together.
//!
//! Pure: a limit, the state kept for one key, an instant and a number of hits go in; a verdict and
//! the new state come out. No clock, no I/O, no async. Every store answers with the numbers
//! computed here.
//!
//! This file has a limit, and what a charge answers: the verdict and the levels of one limit, the decision of a rule.
//! [`algorithm`] defines what an algorithm is, [`algorithms`] lists them, and [`plan`] charges all
//! limits of a rule.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
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

pub use algorithm::Packed;
pub(crate) use algorithm::{Hits, LimitAlgorithm};
pub use algorithms::*;
pub use calendar::{Calendar, CalendarError};
pub(crate) use numbers::NumbersChange;
pub use numbers::{Numbers, NumbersError};
pub use plan::{CountError, KeyState, LeasedHits, LimitReading, Op, Plan, State, UpTo};
pub use plan::{Otherwise, Reservation, ReservationOp, Reserve, Undo, smallest_capacity};
pub(crate) use saved::SavedNumbers;
pub use saved::log_copy::{LogCopy, NextPart};
pub use unit::Unit;

use std::fmt;

use smallvec::SmallVec;

use hit_log::HitLog;

/// Whole microseconds: an instant since the Unix epoch, or a duration.
pub type Micros = u64;

/// One second in microseconds.
pub const SECOND: Micros = 1_000_000;

/// The longest period of a limit, in seconds: 100 years of 365 days.
pub const MAX_PERIOD_SECONDS: u64 = 100 * 365 * 86_400;

/// The longest wait, in years of 365 days. A limit that takes longer to return to its full
/// allowance is rejected, so that times and expiries stay exact in every store.
pub const MAX_WAIT_YEARS: u64 = 1_000;

/// [`MAX_WAIT_YEARS`] in microseconds.
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
    /// Whether the months or years of the period are written as days, and shown so.
    pub in_days: bool,
    /// Whether hits of a denied descriptor are charged to this limit too.
    pub charge_denied: bool,
    /// Whether the limit only counts: it never denies and never is the binding limit.
    pub shadow_mode: bool,
    /// How hits are counted, with its parameters.
    pub algorithm: Algorithm,
}

impl Limit {
    /// Returns a fixed window of `multiplier` units that counts as the reference does: aligned to the epoch, with hits
    /// of denied requests. `None` if the period is zero or over 100 years.
    pub fn fixed_window(requests_per_unit: u32, unit: Unit, multiplier: u32) -> Option<Limit> {
        let period = unit.period(multiplier)?;
        let window = FixedWindow { n: requests_per_unit, period, calendar: None };
        let limit = Limit::without_period(requests_per_unit, Algorithm::FixedWindow(window), true);
        Some(Limit { unit: Some(unit), unit_multiplier: multiplier, ..limit })
    }

    /// Returns a limit without a name whose period is not shown.
    pub fn without_period(
        requests_per_unit: u32,
        algorithm: Algorithm,
        charge_denied: bool,
    ) -> Limit {
        Limit {
            name: Box::default(),
            requests_per_unit,
            unit: None,
            unit_multiplier: 1,
            in_days: false,
            charge_denied,
            shadow_mode: false,
            algorithm,
        }
    }

    /// Returns the most hits that it can allow at once: its burst, or its n; 0 if it denies every hit.
    pub fn capacity(&self) -> u64 {
        match self.requests_per_unit {
            0 => 0,
            n => self.algorithm.capacity(n),
        }
    }

    /// Returns the time in which its whole capacity comes back; none if that is its period, or it allows nothing.
    #[inline]
    pub fn refill_time(&self) -> Option<Micros> {
        self.algorithm.refill_time().filter(|_| self.requests_per_unit > 0)
    }

    /// Returns whether its windows are those of a calendar, and of about the length of its period.
    pub fn follows_calendar(&self) -> bool {
        matches!(&self.algorithm, Algorithm::FixedWindow(window) if window.calendar.is_some())
    }

    /// Returns from how many hits on it is nearly used up, computed with 32-bit floats as in the reference.
    pub fn near_threshold(&self, ratio: f32) -> f32 {
        self.capacity() as f32 * ratio
    }

    /// Returns whether an advanced state allows hits. Zero hits are a look: denied if the limit is exceeded where
    /// denied hits are charged, else if it is full. A limit of 0 denies looks too. Only a fixed window that charges
    /// denied hits answers them as any other limit does, like the reference.
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
            (Some(unit), multiplier) if self.in_days => {
                write!(f, "{n} per {} days", unit.seconds() * u64::from(multiplier) / 86_400)?;
            }
            (Some(unit), 1) => write!(f, "{n} per {}", unit.name())?,
            (Some(unit), multiplier) => write!(f, "{n} per {multiplier} {}s", unit.name())?,
        }
        if self.unit == Some(Unit::Month) && !self.follows_calendar() && !self.in_days {
            f.write_str(" of 30 days")?;
        }
        self.algorithm.write_text(f)?;
        if self.shadow_mode { f.write_str(" (shadow)") } else { Ok(()) }
    }
}

fn wait(until: Micros, now: Micros) -> Micros {
    until.saturating_sub(now)
}

/// One limit's answer to some hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the hits are allowed.
    pub allowed: bool,
    /// The wait until the same hits are allowed if nothing else happens; none if they are now, or never will be.
    pub retry_after: Option<Micros>,
}

impl Verdict {
    pub(crate) const ALLOWED: Verdict = Verdict { allowed: true, retry_after: None };

    /// A denial that no wait ends.
    pub(crate) const NEVER: Verdict = Verdict { allowed: false, retry_after: None };
}

/// How much of one limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Hits counted.
    pub used: u64,
    /// The largest number of hits allowed now.
    pub remaining: u64,
    /// Time until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
    /// Whether the state means the same as no state.
    pub empty: bool,
}

impl Levels {
    /// The levels of a state that is not of the limit's algorithm.
    pub(crate) const UNKNOWN: Levels =
        Levels { used: 0, remaining: 0, reset_after: 0, empty: true };
}

/// How full a key's state is, by which the memory store chooses what to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fill {
    /// Below half of its limit.
    Low,
    /// Half of the limit or more is used.
    High,
    /// The limit is used up.
    Full,
}

/// What made a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The store, from the key's state.
    #[default]
    Store,
    /// This replica decided: it repeats a denial that still holds.
    DeniedLocally,
    /// This replica decided: it serves hits that the store has charged before.
    Leased,
    /// The policy for a failing store.
    Degraded,
}

/// The result of reserving hits, of settling a reservation, or of cancelling one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservationResult {
    /// No reservation was made or settled: the request was denied, a policy decided, or the operation is another.
    #[default]
    None,
    /// Hits were reserved.
    Reserved,
    /// The reservation was settled or cancelled.
    Settled,
    /// The id has no reservation to settle or to cancel.
    Unknown,
    /// The same request has reserved these hits before.
    Repeated,
    /// Another request has reserved hits under the id before.
    Conflict,
}

/// The answer for one descriptor: that of its binding limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether all limits that are enforced allow the hits.
    pub allowed: bool,
    /// The index of the binding limit in the plan.
    pub limit: u8,
    /// Limits in shadow mode that would have denied, one bit each.
    pub would_deny: u16,
    /// Hits the binding limit had counted before these.
    pub used_before: u64,
    /// The largest number of hits the binding limit allows now, after these.
    pub remaining: u64,
    /// Time until the binding limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
    /// See [`Verdict::retry_after`].
    pub retry_after: Option<Micros>,
    /// What made the decision.
    pub source: Source,
    /// The hits that an [`UpTo`](Op::UpTo) took, or that were charged to settle; 0 if it is denied, or
    /// a policy decided that charges nothing, and for other operations.
    pub granted: u32,
    /// The hits that were reserved, where they are settled now.
    pub reserved: u32,
    /// The result for a reservation.
    pub reservation: ReservationResult,
    /// Other limits that these hits brought or kept near their n: see [`Plan::with_near_limit_ratio`].
    pub near: NearLimits,
}

/// Limits near their n, after hits that they took. They are rare, so a decision has room only for their address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NearLimits(Option<Box<SmallVec<[NearLimit; 2]>>>);

/// How much of a limit is used after hits that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearLimit {
    /// The index of the limit in the plan.
    pub limit: u8,
    /// Hits counted.
    pub used: u64,
    /// Time until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
}

impl NearLimits {
    /// Iterates over the limits, in the order of the rule.
    pub fn iter(&self) -> impl Iterator<Item = &NearLimit> {
        self.0.iter().flat_map(|limits| limits.iter())
    }

    pub(crate) fn push(&mut self, near: NearLimit) {
        self.0.get_or_insert_default().push(near);
    }
}

impl Decision {
    /// The decision of a plan without limits.
    pub(crate) const ALLOWED: Decision = Decision {
        allowed: true,
        limit: 0,
        would_deny: 0,
        used_before: 0,
        remaining: u64::MAX,
        reset_after: 0,
        retry_after: None,
        source: Source::Store,
        granted: 0,
        reserved: 0,
        reservation: ReservationResult::None,
        near: NearLimits(None),
    };
}

/// The outcome of a charge: the decision, and what a store must know of the new state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeOutcome {
    /// The answer to the charge.
    pub decision: Decision,
    /// When the state means the same as no state. If that is not after now, it need not be kept.
    pub expires: Micros,
    /// How full the new state is.
    pub fill: Fill,
}

/// The hits in flight of a concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLevels {
    /// The number of holds; none if the limit has no hold ids.
    pub ids: Option<u64>,
    /// The number of hits in flight.
    pub hits: u64,
    /// Time until the oldest hold expires, or without ids all hits; 0 if there are none.
    pub expires_after: Micros,
}

/// The hits that a limit counted over the last span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanCount {
    /// The index of the limit in the plan.
    pub limit: u8,
    /// The number of hits in the span.
    pub count: u64,
    /// The length of the intervals that hits are counted by; 0 if each is counted by its own time.
    pub resolution: Micros,
    /// A hit may be counted for up to this long after it has left the span; 0 if the count is exact.
    pub max_late: Micros,
    /// Whether earlier hits of the span may be missing, because the log of the rule is full and keeps no more.
    pub is_minimum: bool,
}
