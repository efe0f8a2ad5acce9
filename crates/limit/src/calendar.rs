//! Fixed windows that follow the calendar of a time zone (`time_zone` in rules): days, weeks, months and years, through
//! changes to and from daylight saving time. They start at midnight, on Monday and on the first, or where a rule says.
//!
//! The start of a window is the first instant at which the clocks show it or a later time: a time that they skip is the
//! end of the gap, and of one that they show twice it is the first. The window of `t` starts with the last start that
//! is not after `t`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

use crate::time::{Micros, Unit};

/// The windows of one unit in one time zone.
#[derive(Debug)]
pub struct Calendar {
    unit: Unit,
    zone: TimeZone,
    name: Box<str>,
    /// The start of a window within its unit, as [`starts`](Self::starts) returns it.
    starts: Box<str>,
    /// The days and the time of `starts` after the start of the unit.
    days: i8,
    time: Time,
    /// The boundaries last looked up: all threads mostly need the same again, and time zone rules are slow.
    last: ArcSwap<[Micros; 4]>,
}

impl PartialEq for Calendar {
    /// Compares unit, zone and start; the cached boundaries do not matter.
    fn eq(&self, other: &Calendar) -> bool {
        (self.unit, &self.name, &self.starts) == (other.unit, &other.name, &other.starts)
    }
}

impl Eq for Calendar {}

/// Why there is no such calendar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// No IANA time zone has this name.
    #[error("there is no time zone {0:?}")]
    UnknownZone(String),
    /// The calendar does not have windows of this unit.
    #[error("only days, weeks, months and years follow the calendar, not a {0}")]
    NoCalendarUnit(&'static str),
}

impl Calendar {
    /// Returns the calendar of `unit` (a day, week, month or year) in the zone of that IANA name.
    ///
    /// # Errors
    /// If the zone is unknown, and for other units.
    pub fn new(unit: Unit, zone: &str) -> Result<Calendar, CalendarError> {
        if !matches!(unit, Unit::Day | Unit::Week | Unit::Month | Unit::Year) {
            return Err(CalendarError::NoCalendarUnit(unit.name()));
        }
        let found = TimeZone::get(zone).map_err(|_| CalendarError::UnknownZone(zone.to_owned()))?;
        Ok(Calendar {
            unit,
            zone: found,
            name: zone.into(),
            starts: Box::default(),
            days: 0,
            time: Time::midnight(),
            last: ArcSwap::default(),
        })
    }

    /// Returns the calendar with windows that start within the unit: a month on a day from 1 to 31, or on its last if it
    /// is shorter; a week on a day such as `monday` or `mon`; a day at a time such as `06:00`. None for other texts.
    pub fn starting(self, starts: &str) -> Option<Calendar> {
        let midnight = Time::midnight();
        let number = |text: &str| {
            let is_number = text.len() < 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<i8>().ok().filter(|_| is_number)
        };
        let (days, time, starts) = match self.unit {
            Unit::Month => {
                let day = number(starts).filter(|day| (1..=31).contains(day))?;
                (day - 1, midnight, day.to_string())
            }
            Unit::Week => {
                let text = starts.to_ascii_lowercase();
                let has_text = |(_, day): &(i8, &str)| *day == text || day[..3] == text;
                let (days, day) = (0..).zip(WEEKDAYS).find(has_text)?;
                (days, midnight, day.to_owned())
            }
            Unit::Day => {
                let (hour, minute) = starts.split_once(':').filter(|(_, text)| text.len() == 2)?;
                let time = Time::new(number(hour)?, number(minute)?, 0, 0).ok()?;
                (0, time, format!("{hour:0>2}:{minute}"))
            }
            _ => return None,
        };
        let is_default = days == 0 && time == midnight;
        let starts = if is_default { Box::default() } else { starts.into() };
        Some(Calendar { starts, days, time, last: ArcSwap::default(), ..self })
    }

    /// Returns the start of a window within its unit, such as `15`, `sunday` or `06:00`; empty if it is that of the unit.
    pub fn starts(&self) -> &str {
        &self.starts
    }

    /// Returns the zone's IANA name, as configured.
    pub fn zone(&self) -> &str {
        &self.name
    }

    /// Returns the start and the end of the window of `t`. After the year 9999, one window has no end.
    // Few limits have a calendar: charges of the others are shorter without this in them.
    #[inline(never)]
    pub fn window(&self, t: Micros) -> (Micros, Micros) {
        let mut around = **self.last.load();
        if t < around[0] || t >= around[3] {
            around = self.boundaries(t);
        }
        match around {
            [before, start, ..] if t < start => (before, start),
            [_, start, end, _] if t < end => (start, end),
            [.., end, after] => (end, after),
        }
    }

    /// Returns the starts of four windows in order: one before that of `t`, its own, and two after it.
    pub fn boundaries(&self, t: Micros) -> [Micros; 4] {
        let last = **self.last.load();
        if (last[1]..last[2]).contains(&t) {
            return last;
        }
        let window = |t| self.compute(t).unwrap_or((t, Micros::MAX));
        let (start, end) = window(t);
        let around = [window(start.saturating_sub(1)).0, start, end, window(end).1];
        self.last.store(Arc::new(around));
        around
    }

    fn compute(&self, t: Micros) -> Option<(Micros, Micros)> {
        let now = Timestamp::from_microsecond(i64::try_from(t).ok()?).ok()?;
        let date = now.to_zoned(self.zone.clone()).date();
        let (unit, length) = match self.unit {
            Unit::Week => {
                let since_monday = i64::from(date.weekday().to_monday_zero_offset());
                (date.checked_sub(since_monday.days()).ok()?, 1.week())
            }
            Unit::Month => (date.first_of_month(), 1.month()),
            Unit::Year => (date.first_of_year(), 1.year()),
            _ => (date, 1.day()),
        };
        // `t` is in the window that starts in this unit, in the one before, or, where clocks go back over midnight, after.
        let mut start = self.start(unit.checked_sub(length).ok()?)?;
        let mut next = unit;
        loop {
            let end = self.start(next)?;
            if end > t {
                return Some((start, end));
            }
            (start, next) = (end, next.checked_add(length).ok()?);
        }
    }

    /// Returns the start of the window within the unit that starts on a date.
    fn start(&self, unit: Date) -> Option<Micros> {
        let mut date = unit.checked_add(i64::from(self.days).days()).ok()?;
        if self.unit == Unit::Month {
            date = date.min(unit.last_of_month());
        }
        let local = self.zone.to_ambiguous_timestamp(date.to_datetime(self.time));
        let start = match local.offset() {
            // With the offset after the gap, the time that is skipped is an instant shortly before it.
            AmbiguousOffset::Gap { after, .. } => {
                let before = after.to_timestamp(local.datetime()).ok()?;
                self.zone.following(before).next()?.timestamp()
            }
            _ => local.compatible().ok()?,
        };
        Some(Micros::try_from(start.as_microsecond()).unwrap_or(0))
    }
}

const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECOND;

    fn at(text: &str) -> Micros {
        text.parse::<Timestamp>().unwrap().as_microsecond() as Micros
    }

    fn window(unit: Unit, zone: &str, t: &str) -> (String, u64) {
        let (start, end) = Calendar::new(unit, zone).unwrap().window(at(t));
        let hours = (end - start) / 3_600_000_000;
        (Timestamp::from_microsecond(start as i64).unwrap().to_string(), hours)
    }

    #[test]
    fn windows_follow_the_calendar_and_its_clock_changes() {
        let berlin = "Europe/Berlin";
        for (unit, zone, t, start, hours) in [
            (Unit::Day, "UTC", "2026-11-21T12:00:00Z", "2026-11-21T00:00:00Z", 24),
            (Unit::Day, berlin, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", 23),
            (Unit::Day, berlin, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", 25),
            (Unit::Week, "UTC", "2026-11-21T12:00:00Z", "2026-11-16T00:00:00Z", 168),
            (Unit::Week, "UTC", "2026-11-16T00:00:00Z", "2026-11-16T00:00:00Z", 168),
            (Unit::Month, "UTC", "2028-02-10T00:00:00Z", "2028-02-01T00:00:00Z", 29 * 24),
            (Unit::Month, berlin, "2026-03-05T00:00:00Z", "2026-02-28T23:00:00Z", 31 * 24 - 1),
            (Unit::Year, "UTC", "2028-12-31T23:59:59Z", "2028-01-01T00:00:00Z", 366 * 24),
            // Clocks there skip midnight.
            (Unit::Day, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", 23),
        ] {
            assert_eq!(window(unit, zone, t), (start.to_owned(), hours), "{zone} {t}");
        }
    }

    #[test]
    fn windows_follow_each_other_without_gaps() {
        for unit in [Unit::Day, Unit::Week, Unit::Month, Unit::Year] {
            let calendar = Calendar::new(unit, "America/New_York").unwrap();
            let (_, mut end) = calendar.window(at("2020-01-01T00:00:00Z"));
            for _ in 0..800 {
                let next = calendar.window(end);
                assert_eq!(next.0, end);
                assert_eq!(calendar.window(next.1 - 1), next);
                end = next.1;
            }
        }
    }

    #[test]
    fn the_boundaries_are_those_of_the_windows_around() {
        let start = at("2026-01-01T00:00:00Z");
        for unit in [Unit::Day, Unit::Week, Unit::Month, Unit::Year] {
            let calendar = || Calendar::new(unit, "Europe/Berlin").unwrap();
            let kept = calendar();
            // Back and forth over the clock changes of some years, by steps of 1 to 400 days.
            for i in 0..2_000_u64 {
                let day = 86_400 * SECOND;
                let t = start + i * i % 400 * day + i * i * 7_919 % day;
                let [before, from, to, after] = kept.boundaries(t);
                let fresh = |t| calendar().window(t);
                assert_eq!(
                    [fresh(from - 1), fresh(t), fresh(to)],
                    [(before, from), (from, to), (to, after)]
                );
                let far = t + i * i * 31 % 900 * day;
                assert_eq!(kept.window(far), fresh(far), "{unit:?} {far}");
            }
        }
    }

    /// The scripts of Redis get all boundaries with each call.
    #[test]
    fn the_windows_around_now_are_computed_once() {
        let calendar = Calendar::new(Unit::Month, "Europe/Berlin").unwrap();
        let [before, start, end, after] = calendar.boundaries(at("2026-11-21T12:00:00Z"));
        let computed = calendar.last.load_full();
        for t in [before, start - 1, start, end - 1, end, after - 1] {
            calendar.window(t);
        }
        calendar.boundaries(end - 1);
        assert!(Arc::ptr_eq(&computed, &calendar.last.load_full()));
        assert_eq!(calendar.boundaries(end)[1..3], [end, after]);
    }

    #[test]
    fn invalid_calendars_are_rejected() {
        assert!(Calendar::new(Unit::Hour, "UTC").is_err());
        assert!(Calendar::new(Unit::Day, "Mars/Olympus").is_err());
        let calendar = Calendar::new(Unit::Year, "UTC").unwrap();
        assert!(calendar.window(Micros::MAX).1 == Micros::MAX);
        assert!(calendar.window(0).0 == 0);
    }
}
