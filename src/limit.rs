//! How much is allowed: the arithmetic of one limit, and of all limits of a rule together.
//!
//! Pure: a limit, the state kept for one key, an instant and a number of hits go in; a verdict
//! and the new state come out. No clock, no input or output, nothing asynchronous. Every store
//! answers with the numbers computed here.

pub mod bucketed_window;
pub mod calendar;
pub mod concurrency;
pub mod fixed_window;
pub mod gcra;
mod part;
pub mod plan;
mod share;
pub mod sliding_log;
pub mod sliding_window;
pub(crate) mod stored;
#[cfg(test)]
mod tests;
pub mod token_bucket;

pub use bucketed_window::BucketedWindow;
pub use calendar::Calendar;
pub use concurrency::Concurrency;
pub use fixed_window::FixedWindow;
pub use gcra::{Gcra, GcraError};
pub use plan::{ChargeOutcome, Decision, Fill, Op, Packed, Plan, Source, State};
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use token_bucket::TokenBucket;

/// Whole microseconds: an instant since the Unix epoch, or a length of time.
pub type Micros = u64;

/// One second in [`Micros`].
pub const SECOND: Micros = 1_000_000;

/// The longest period a limit may have, in seconds: 100 years of 365 days.
pub const MAX_PERIOD_SECONDS: u64 = 100 * 365 * 86_400;

/// The longest wait, in years of 365 days: a limit that takes longer to be back to its full allowance
/// is refused, so that times and expiries stay exact in every store.
pub const MAX_WAIT_YEARS: u64 = 1_000;

/// [`MAX_WAIT_YEARS`] in [`Micros`].
pub const MAX_WAIT: Micros = MAX_WAIT_YEARS * 365 * 86_400 * SECOND;

/// The unit of a limit's period, with the lengths the reference gives them: a month is 30 days,
/// a year 365.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    pub const ALL: [Unit; 7] =
        [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    /// Its length in seconds.
    pub fn seconds(self) -> u64 {
        match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => 86_400,
            Unit::Week => 7 * 86_400,
            Unit::Month => 30 * 86_400,
            Unit::Year => 365 * 86_400,
        }
    }

    /// As written in rule files, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
            Unit::Year => "year",
        }
    }

    /// The unit of that name, in any letter case.
    pub fn from_name(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// The period of `multiplier` of this unit, if it lies between a second and 100 years.
    pub fn period(self, multiplier: u32) -> Option<Micros> {
        let seconds = self.seconds() * u64::from(multiplier);
        (1..=MAX_PERIOD_SECONDS).contains(&seconds).then(|| seconds * SECOND)
    }
}

/// One limit of a rule: an algorithm with its numbers, and how its answers are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Echoed when this limit binds; empty for none.
    pub name: Box<str>,
    /// `n`: what one period allows. 0 denies every hit.
    pub requests_per_unit: u32,
    /// What the period is told as; none where the limit has no period.
    pub unit: Option<Unit>,
    /// How many units the period has; at least 1.
    pub unit_multiplier: u32,
    /// Whether hits of a denied descriptor are charged to this limit all the same.
    pub charge_denied: bool,
    /// Watches only: never denies, never binds.
    pub shadow_mode: bool,
    pub algorithm: Algorithm,
}

impl Limit {
    /// A fixed window of `multiplier` units aligned to the epoch, as the reference counts: hits
    /// of denied requests are charged too. None where the period is zero or over 100 years.
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

    /// Whether looks are answered by the count where `n` is 0, as the reference does.
    fn looks_at_zero(&self) -> bool {
        self.charge_denied && matches!(self.algorithm, Algorithm::FixedWindow(_))
    }
}

/// The arithmetic of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    BucketedWindow(BucketedWindow),
    TokenBucket(TokenBucket),
    /// Also called leaky bucket.
    Gcra(Gcra),
    Concurrency(Concurrency),
}

impl Algorithm {
    /// As it is written in rule files.
    pub fn name(&self) -> &'static str {
        match self {
            Algorithm::FixedWindow(_) => "fixed_window",
            Algorithm::SlidingWindow(_) => "sliding_window",
            Algorithm::SlidingLog(_) => "sliding_log",
            Algorithm::BucketedWindow(_) => "bucketed_window",
            Algorithm::TokenBucket(_) => "token_bucket",
            Algorithm::Gcra(_) => "gcra",
            Algorithm::Concurrency(_) => "concurrency",
        }
    }
}

/// What one limit says of hits that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    /// The smallest wait after which the same hits are allowed if nothing else happens: none
    /// where they are allowed now, or never will be.
    pub retry_after: Option<Micros>,
}

impl Verdict {
    const ALLOWED: Verdict = Verdict { allowed: true, retry_after: None };
}

/// Where one limit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Hits counted.
    pub used: u64,
    /// The largest number of hits allowed now.
    pub remaining: u64,
    /// Until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
    /// Whether the state says no more than its absence would.
    pub empty: bool,
}

/// Until an instant; none where it has passed. From now, also where the clock stepped back.
fn wait(until: Micros, now: Micros) -> Micros {
    until.saturating_sub(now)
}
