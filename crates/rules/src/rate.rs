//! Parses and prints rates as rule files and operators write them: `10/s`, `300/15m`, `5000/month`.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use weir_common::duration::{exact, read_duration};
use weir_limit::{Limit, MAX_PERIOD_SECONDS, Unit};

/// A number of hits per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// The hits.
    pub n: u32,
    /// The period.
    pub per: Per,
}

/// The period of a rate. Only a unit, such as a month, can follow the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Per {
    /// One unit.
    Unit(Unit),
    /// One second to 100 years.
    Seconds(u64),
}

impl Rate {
    /// Returns the rate of a limit; none if it has no period.
    pub fn of(limit: &Limit) -> Option<Rate> {
        let per = match (limit.unit?, limit.unit_multiplier) {
            (unit, 1) if !limit.in_days => Per::Unit(unit),
            (unit, multiplier) => Per::Seconds(unit.seconds() * u64::from(multiplier)),
        };
        Some(Rate { n: limit.requests_per_unit, per })
    }
}

impl Per {
    /// Returns the length; of a month 30 days.
    pub fn seconds(self) -> u64 {
        match self {
            Per::Unit(unit) => unit.seconds(),
            Per::Seconds(seconds) => seconds,
        }
    }

    fn read(text: &str) -> Option<Per> {
        if let Some(unit) = unit(text) {
            return Some(Per::Unit(unit));
        }
        let time = read_duration(text).filter(|time| time.subsec_nanos() == 0)?;
        let seconds = time.as_secs();
        (1..=MAX_PERIOD_SECONDS).contains(&seconds).then_some(Per::Seconds(seconds))
    }
}

/// The error is what to write instead.
impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let read = |(n, per): (&str, &str)| {
            Some(Rate { n: number(n.trim())?, per: Per::read(per.trim())? })
        };
        text.split_once('/').and_then(read).ok_or_else(|| help(text))
    }
}

/// Writes a rate as it is read.
impl Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.n, self.per)
    }
}

impl Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Per::Unit(unit) => f.write_str(short(unit)),
            Per::Seconds(seconds) => f.write_str(&exact(Duration::from_secs(seconds))),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a decimal number, with underscores as in YAML. A leading zero would be octal there.
fn number(text: &str) -> Option<u32> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
        && !text.starts_with('_')
        && (text == "0" || !text.starts_with('0'));
    text.replace('_', "").parse().ok().filter(|_| is_decimal)
}

/// Reads a unit: `s`, `sec`, `second`, `seconds`. A lone letter is in lower case: `M` might be a month.
fn unit(word: &str) -> Option<Unit> {
    let lower = word.to_ascii_lowercase();
    match lower.strip_suffix('s').unwrap_or(&lower) {
        "sec" => Some(Unit::Second),
        "min" => Some(Unit::Minute),
        name => Unit::ALL.into_iter().find(|unit| unit.name() == name || short(*unit) == word),
    }
}

fn short(unit: Unit) -> &'static str {
    match unit {
        Unit::Second => "s",
        Unit::Minute => "m",
        Unit::Hour => "h",
        Unit::Day => "d",
        Unit::Week => "w",
        Unit::Month | Unit::Year => unit.name(),
    }
}

/// The words between the number and the unit that do not change the number. Any other word might: `k`, `mio`, `dozen`.
const COUNTED: [&str; 15] = [
    "r", "req", "reqs", "request", "requests", "hit", "hits", "call", "calls", "query", "queries",
    "per", "a", "an", "every",
];

/// Returns what to write instead: for `10 per second` or `10r/s` the rate that is meant.
fn help(text: &str) -> String {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (n, rest) = text.split_at(end);
    let mut words: Vec<&str> =
        rest.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect();
    // A lone unit may also be a multiplier: `10m` is ten minutes, or ten million.
    let last = words.pop().filter(|word| !rest.starts_with(word));
    let last = last.or_else(|| rest.strip_prefix("rp"));
    let meant = last.and_then(|word| unit(word.strip_prefix("rp").unwrap_or(word)));
    let multiplier = match words.first() {
        Some(&("k" | "K")) => 1_000,
        // In lower case it may be a minute.
        Some(&"M") => 1_000_000,
        _ => 1,
    };
    let is_counted = |word: &&str| COUNTED.iter().any(|known| known.eq_ignore_ascii_case(word));
    let is_known = words.iter().skip(usize::from(multiplier > 1)).all(is_counted);
    match (number(n).and_then(|n| n.checked_mul(multiplier)), meant) {
        (Some(n), Some(unit)) if is_known && !rest.contains(|c: char| c.is_ascii_digit()) => {
            format!("write `{n}/{}`", short(unit))
        }
        (Some(n), _) if rest.is_empty() => {
            format!("write the period too, such as `{n}/s`, `{n}/15m` or `{n}/month`")
        }
        _ => "write a whole number and a period, such as 10/s, 300/15m or 5000/month; a period is \
              s, m, h, d, w, month, year, or whole seconds from 1s to 100 years"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them_and_written_back() {
        for (text, shown, seconds) in [
            ("10/s", "10/s", 1),
            ("10 / second", "10/s", 1),
            ("10/Seconds", "10/s", 1),
            ("10/secs", "10/s", 1),
            ("1_000/m", "1000/m", 60),
            ("0/min", "0/m", 60),
            ("7/hours", "7/h", 3_600),
            ("800/d", "800/d", 86_400),
            ("4294967295/w", "4294967295/w", 604_800),
            ("5000/month", "5000/month", 30 * 86_400),
            ("5000/Years", "5000/year", 365 * 86_400),
            ("300/15m", "300/15m", 900),
            ("300/1h30m", "300/1h30m", 5_400),
            ("300/1.5m", "300/1m30s", 90),
            ("5/2w", "5/14d", 1_209_600),
            ("5/1w1d", "5/8d", 691_200),
            ("1/36500d", "1/36500d", MAX_PERIOD_SECONDS),
        ] {
            let rate: Rate = text.parse().unwrap_or_else(|help| panic!("{text}: {help}"));
            assert_eq!((rate.to_string().as_str(), rate.per.seconds()), (shown, seconds));
            assert_eq!(shown.parse(), Ok(rate));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_rate_that_is_written_back_or_has_a_fix(
            text in "\\PC{0,12}|[0-9_]{1,11} ?/ ?[0-9]{0,3}[a-zA-Z]{0,7}",
        ) {
            match text.parse::<Rate>() {
                Ok(rate) => prop_assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate)),
                Err(help) => prop_assert!(help.starts_with("write ")),
            }
        }
    }

    #[test]
    fn other_texts_have_a_fix() {
        for (text, fix) in [
            ("10 per second", "write `10/s`"),
            ("10r/s", "write `10/s`"),
            ("600 rpm", "write `600/m`"),
            ("10 requests every Minute", "write `10/m`"),
            ("5 a month", "write `5/month`"),
            ("1k/m", "write `1000/m`"),
            ("10K/h", "write `10000/h`"),
            ("1M/d", "write `1000000/d`"),
            ("2k requests per minute", "write `2000/m`"),
            ("600rpm", "write `600/m`"),
            ("10", "write the period too, such as `10/s`, `10/15m` or `10/month`"),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap_err().to_string(), fix, "{text}");
        }
        let general = [
            "",
            "/",
            "/s",
            "10/",
            "s/10",
            "0.5/s",
            "-1/s",
            "+1/s",
            "1e3/s",
            "010/s",
            "_1/s",
            "0x10/s",
            "1,000/s",
            "10k/s/m/2",
            "2m/d",
            "10m",
            "10MB/s",
            "10KiB/s",
            "10 thousand per day",
            "2 dozen a day",
            "10G/s",
            "5000M/d",
            "4294967296/s",
            "10/M",
            "10/fortnight",
            "10/100ms",
            "10/0s",
            "10/90",
            "10/15 minutes",
            "1/36501d",
            "1/5300w",
            "10//s2",
        ];
        for text in general {
            let help = text.parse::<Rate>().unwrap_err().to_string();
            assert!(help.starts_with("write a whole number and a period, such as 10/s"), "{text}");
        }
    }
}
