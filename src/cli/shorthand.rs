//! Rates in short form: `10/s`, `300/15m`.

use std::str::FromStr;
use std::time::Duration;

use weir_limit::Unit;

const WANTED: &str = "write a number and a unit, such as 10/s, 200/m or 300/15m";

/// A number of requests in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub requests: u32,
    pub unit: Unit,
    /// The number of units in the period, at least 1.
    pub multiplier: u32,
}

impl Rate {
    /// Returns the time between two requests of a steady flow; at least a nanosecond.
    pub fn interval(self) -> Duration {
        let period = Duration::from_secs(self.unit.seconds()).saturating_mul(self.multiplier);
        (period / self.requests.max(1)).max(Duration::from_nanos(1))
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Parses a rate above zero. An `r` may follow the number, as nginx writes it.
    ///
    /// # Errors
    ///
    /// What to write instead.
    fn from_str(text: &str) -> Result<Rate, String> {
        let rate = text.split_once('/').and_then(|(requests, period)| {
            let requests = requests.trim();
            let requests = requests.strip_suffix('r').unwrap_or(requests);
            let period = period.trim();
            let digits = period.find(|c: char| !c.is_ascii_digit())?;
            let (multiplier, unit) = period.split_at(digits);
            let multiplier = if multiplier.is_empty() { 1 } else { multiplier.parse().ok()? };
            Some(Rate { requests: number(requests)?, unit: parse_unit(unit.trim())?, multiplier })
        });
        let rate = rate.filter(|rate| rate.requests > 0 && rate.multiplier > 0);
        rate.ok_or_else(|| WANTED.to_owned())
    }
}

/// Parses a number of digits only.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
}

fn parse_unit(text: &str) -> Option<Unit> {
    Some(match text {
        "s" | "sec" | "second" | "seconds" => Unit::Second,
        "m" | "min" | "minute" | "minutes" => Unit::Minute,
        "h" | "hour" | "hours" => Unit::Hour,
        "d" | "day" | "days" => Unit::Day,
        "w" | "week" | "weeks" => Unit::Week,
        "mo" | "month" | "months" => Unit::Month,
        "y" | "year" | "years" => Unit::Year,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers_and_units() {
        let rate = |requests, unit, multiplier| Ok(Rate { requests, unit, multiplier });
        for (text, wanted) in [
            ("10/s", rate(10, Unit::Second, 1)),
            ("10r/s", rate(10, Unit::Second, 1)),
            ("200/m", rate(200, Unit::Minute, 1)),
            ("300/15m", rate(300, Unit::Minute, 15)),
            (" 5 / 2 weeks", rate(5, Unit::Week, 2)),
        ] {
            assert_eq!(text.parse(), wanted, "{text}");
        }
        for bad in
            ["", "10", "10/", "/s", "0/s", "1/0s", "-1/s", "+1/s", "1.5/s", "1/x", "1/s/s", "ü/s"]
        {
            assert_eq!(bad.parse::<Rate>(), Err(WANTED.to_owned()), "{bad}");
        }
    }

    #[test]
    fn the_interval_is_the_period_divided() {
        let interval = |text: &str| text.parse::<Rate>().unwrap().interval();
        assert_eq!(interval("10/s"), Duration::from_millis(100));
        assert_eq!(interval("300/15m"), Duration::from_secs(3));
        assert_eq!(interval("4294967295/s"), Duration::from_nanos(1));
    }
}
