//! How much is allowed: the arithmetic of one limit, and of all limits of a rule together.
//!
//! Pure: a limit, the state kept for one key, an instant and a number of hits go in; a verdict
//! and the new state come out. No clock, no input or output, nothing asynchronous. Every store
//! answers with the numbers computed here.

pub mod fixed_window;
pub mod plan;

pub use fixed_window::FixedWindow;
pub use plan::{Charged, Fill, Judged, Op, Plan, State};

/// Whole microseconds: an instant since the Unix epoch, or a length of time.
pub type Micros = u64;

/// One second in [`Micros`].
pub const SECOND: Micros = 1_000_000;

/// The longest period a limit may have, in seconds: 100 years of 365 days.
pub const MAX_PERIOD_SECONDS: u64 = 100 * 365 * 86_400;

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
#[derive(Clone, Debug)]
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
            algorithm: Algorithm::FixedWindow(FixedWindow { n: requests_per_unit, period }),
        })
    }
}

/// The arithmetic of a limit.
#[derive(Clone, Debug)]
pub enum Algorithm {
    FixedWindow(FixedWindow),
}

/// The answer for one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    /// Hits counted before these.
    pub used_before: u64,
    /// The largest number of hits allowed now, after these.
    pub remaining: u64,
    /// Until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
    /// The smallest wait after which the same hits are allowed if nothing else happens: none
    /// where they are allowed now, or never will be.
    pub retry_after: Option<Micros>,
}
