//! Types and bounds of time: microseconds for instants and durations, and the units of rules.

/// Whole microseconds: an instant since the Unix epoch, or a duration.
pub type Micros = u64;

/// One second in microseconds.
pub const SECOND: Micros = 1_000_000;

/// The longest period of a limit, in seconds: 100 years of 365 days.
pub const MAX_PERIOD_SECONDS: u64 = 100 * 365 * 86_400;

/// [`MAX_PERIOD_SECONDS`] in microseconds. Also bounds the period of a share: the part of a limit for one replica.
pub(crate) const MAX_PERIOD: Micros = MAX_PERIOD_SECONDS * SECOND;

/// The longest wait, in years of 365 days. A limit that takes longer to return to its full
/// allowance is rejected, so that times and expiries stay exact in every store.
pub const MAX_WAIT_YEARS: u64 = 1_000;

/// [`MAX_WAIT_YEARS`] in microseconds.
pub const MAX_WAIT: Micros = MAX_WAIT_YEARS * 365 * 86_400 * SECOND;

/// The unit of a limit's period, as long as in envoyproxy/ratelimit: a month is 30 days, a year 365.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// `second`
    Second,
    /// `minute`
    Minute,
    /// `hour`
    Hour,
    /// `day`
    Day,
    /// `week`
    Week,
    /// `month`, 30 days
    Month,
    /// `year`, 365 days
    Year,
}

impl Unit {
    /// All units, the shortest first.
    pub const ALL: [Unit; 7] =
        [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    /// Returns the length of the unit.
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

    /// Returns the name of the unit in rule files, in lower case.
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

    /// Returns the unit of that name, in any letter case.
    pub fn from_name(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// Returns a length as a multiple of the largest unit that divides it, if it lies between a second and 100 years.
    pub fn of_seconds(seconds: u64) -> Option<(Unit, u32)> {
        let mut units = Unit::ALL.into_iter().rev();
        let unit = units.find(|unit| seconds.is_multiple_of(unit.seconds()))?;
        let multiplier = u32::try_from(seconds / unit.seconds()).ok()?;
        unit.period(multiplier).map(|_| (unit, multiplier))
    }

    /// Returns the length of `multiplier` units, if it lies between a second and 100 years.
    pub fn period(self, multiplier: u32) -> Option<Micros> {
        let seconds = self.seconds() * u64::from(multiplier);
        (1..=MAX_PERIOD_SECONDS).contains(&seconds).then(|| seconds * SECOND)
    }
}
