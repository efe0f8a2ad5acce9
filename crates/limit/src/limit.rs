//! One limit of a rule: what it answers about the state of a key, and how it is charged alone. `plan` charges several,
//! with the same outcome: the decision, and what a store must know of the new state.

use std::fmt;

use crate::algorithm::{Hits, Levels, LimitAlgorithm, Packed, Verdict};
use crate::algorithms::{Algorithm, FixedWindow, LimitState};
use crate::decision::Decision;
use crate::hit_log::HitLog;
use crate::numbers::{Numbers, NumbersChange, NumbersError};
use crate::time::{Micros, Unit};

/// An empty log of hits, for states packed into 12 bytes: their algorithms read none.
static NO_LOG: HitLog = HitLog::EMPTY;

/// One limit of a rule: an algorithm with its parameters, and how its answers are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Echoed in answers if this is the binding limit, whose numbers the answer has; empty for none.
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

impl Limit {
    /// Returns a fixed window of `multiplier` units that counts like envoyproxy/ratelimit: aligned to the epoch, with
    /// hits of denied requests. `None` if the period is zero or over 100 years.
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
    pub(crate) fn verdict(
        &self,
        state: &LimitState,
        log: &HitLog,
        now: Micros,
        hits: Hits,
    ) -> Verdict {
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

    pub(crate) fn levels(&self, state: &LimitState, log: &HitLog, now: Micros) -> Levels {
        self.bound(self.algorithm.levels(state, log, now))
    }

    /// Returns the largest number of hits that an advanced state allows `hold` to take.
    pub(crate) fn room(&self, state: &LimitState, log: &HitLog, now: Micros, hold: u64) -> u64 {
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

    pub(crate) fn charge(&self, state: &mut LimitState, now: Micros, hits: Hits) {
        if self.is_charged(self.algorithm.counts_at_zero()) {
            self.algorithm.charge(state, now, hits, self.charge_denied);
        }
    }

    /// Charges hits whatever the limit says, as those that it denies with `charge_denied`.
    #[cold]
    pub(crate) fn add(&self, state: &mut LimitState, now: Micros, hits: Hits) {
        if self.is_charged(self.algorithm.counts_at_zero()) {
            self.algorithm.charge(state, now, hits, true);
        }
    }

    fn is_charged(&self, counts_at_zero: bool) -> bool {
        self.requests_per_unit > 0 || counts_at_zero
    }

    #[inline]
    pub(crate) fn fill(&self, levels: &Levels) -> Fill {
        match levels.remaining {
            // Denies with or without a state, so nothing is lost with it.
            _ if self.requests_per_unit == 0 => Fill::Low,
            0 => Fill::Full,
            remaining if levels.used >= remaining => Fill::High,
            _ => Fill::Low,
        }
    }

    /// Takes hits as [`Plan::charge`](crate::Plan::charge) does if the limit is alone, without the lists that several need.
    pub(crate) fn take_packed(
        &self,
        packed: &mut Packed,
        now: Micros,
        hits: Hits,
    ) -> ChargeOutcome {
        each!(&self.algorithm, algorithm => self.take_packed_by(algorithm, packed, now, hits))
    }

    #[inline]
    fn take_packed_by<A: LimitAlgorithm>(
        &self,
        algorithm: &A,
        packed: &mut Packed,
        now: Micros,
        hits: Hits,
    ) -> ChargeOutcome {
        let mut state = algorithm.unpack(*packed, now);
        algorithm.advance(&mut state, now);
        let used_before = algorithm.levels(&state, &NO_LOG, now).used;
        let checked = self.hits_to_check(hits, A::ANSWERS_LOOKS_IF_N_IS_ZERO);
        let verdict_of = |state: &A::State| {
            checked.map_or(Verdict::NEVER, |hits| algorithm.verdict(state, &NO_LOG, now, hits))
        };
        let mut verdict = verdict_of(&state);
        let allowed = verdict.allowed || self.shadow_mode;
        if hits.count > 0 {
            let is_charged = verdict.allowed || self.charge_denied;
            if is_charged && self.is_charged(A::COUNTS_AT_ZERO) {
                algorithm.charge(&mut state, now, hits, self.charge_denied);
            }
            if !verdict.allowed {
                algorithm.deny(&mut state, now);
            }
        }
        if !allowed {
            // Charged denials and the restarted wait of a strict bucket make the wait longer.
            verdict.retry_after = verdict_of(&state).retry_after;
        }
        let levels = self.bound(algorithm.levels(&state, &NO_LOG, now));
        *packed = A::pack(&state);
        let decision = Decision {
            allowed,
            would_deny: u16::from(!verdict.allowed && self.shadow_mode),
            used_before,
            remaining: levels.remaining,
            reset_after: levels.reset_after,
            retry_after: if allowed { None } else { verdict.retry_after },
            ..Decision::ALLOWED
        };
        let expires = if levels.empty { 0 } else { now.saturating_add(levels.reset_after) };
        ChargeOutcome { decision, expires, fill: self.fill(&levels) }
    }

    /// Returns the bytes that a state keeps of single hits, if the limit is full.
    pub fn bytes_of_hits(&self) -> u64 {
        self.algorithm.hit_bytes() * u64::from(self.requests_per_unit)
    }

    /// Returns the limit with other numbers and of the same shape, which continues the states of this one.
    ///
    /// # Errors
    /// The algorithm takes no burst, or cannot compute with the numbers.
    pub fn with_numbers(&self, new: Numbers) -> Result<Limit, NumbersError> {
        let change = NumbersChange { old: self.requests_per_unit, new };
        let algorithm = self.algorithm.with_numbers(change)?;
        Ok(Limit { requests_per_unit: new.n, algorithm, ..self.clone() })
    }

    pub(crate) fn replica_share(&self, replicas: u32) -> Limit {
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
