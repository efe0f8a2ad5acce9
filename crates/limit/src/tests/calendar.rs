//! Calendars against a model that watches the clocks of a zone: a window starts when they first show its start or more.

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;

use crate::{Calendar, Micros, SECOND, Unit};

const MINUTE: Micros = 60 * SECOND;
const HALF_HOUR: Micros = 30 * MINUTE;

/// Zones with changes of the clocks at midnight or by other than an hour, without days, and plain ones.
const ZONES: [&str; 22] = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Asuncion",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/London",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
];

const WEEKDAYS: [(&str, Weekday); 4] = [
    ("mon", Weekday::Monday),
    ("Tuesday", Weekday::Tuesday),
    ("saturday", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

const UNITS: [Unit; 4] = [Unit::Day, Unit::Week, Unit::Month, Unit::Year];

#[derive(Clone, Debug)]
enum Start {
    Unit,
    Month(i8),
    Week(usize),
    Day(i8, i8),
}

impl Start {
    fn calendar(&self, unit: Unit, zone: &str) -> Calendar {
        let text = match *self {
            Start::Unit => return Calendar::new(unit, zone).unwrap(),
            Start::Month(day) => day.to_string(),
            Start::Week(i) => WEEKDAYS[i].0.to_owned(),
            Start::Day(hour, minute) => format!("{hour}:{minute:02}"),
        };
        Calendar::new(unit, zone).unwrap().starting(&text).unwrap()
    }

    /// Whether a window starts on this date.
    fn is_on(&self, unit: Unit, date: Date) -> bool {
        match (self, unit) {
            (Start::Day(..), _) | (_, Unit::Day) => true,
            (Start::Month(day), _) => {
                date.day() == *day || date.day() < *day && date == date.last_of_month()
            }
            (Start::Week(i), _) => date.weekday() == WEEKDAYS[*i].1,
            (_, Unit::Week) => date.weekday() == Weekday::Monday,
            (_, Unit::Month) => date.day() == 1,
            _ => date.day_of_year() == 1,
        }
    }

    /// The last start that the clocks have passed when they show `now`.
    fn last(&self, unit: Unit, now: DateTime) -> DateTime {
        let time = match *self {
            Start::Day(hour, minute) => Time::constant(hour, minute, 0, 0),
            _ => Time::midnight(),
        };
        let mut date = now.date();
        while !self.is_on(unit, date) || date.to_datetime(time) > now {
            date = date.yesterday().unwrap();
        }
        date.to_datetime(time)
    }
}

/// Returns the starts of windows between two instants.
fn starts(start: &Start, unit: Unit, zone: &str, from: Micros, to: Micros) -> Vec<Micros> {
    let zone = TimeZone::get(zone).unwrap();
    let local = |t: Micros| zone.to_datetime(Timestamp::from_microsecond(t as i64).unwrap());
    let (mut latest, mut starts) = (local(from), Vec::new());
    let mut last = start.last(unit, latest);
    for t in (from..to).step_by(HALF_HOUR as usize) {
        let end = t + HALF_HOUR;
        let is_changed = local(t).checked_add(30.minutes()).unwrap() != local(end);
        if is_changed || start.last(unit, latest.max(local(end))) != last {
            // Zones change their clocks at whole minutes.
            for t in (t + MINUTE..=end).step_by(MINUTE as usize) {
                latest = latest.max(local(t));
                let passed = start.last(unit, latest);
                if passed != last {
                    last = passed;
                    starts.push(t);
                }
            }
        }
        latest = latest.max(local(end));
    }
    starts
}

fn check(start: &Start, unit: Unit, zone: &str, from: Micros, to: Micros) {
    let calendar = start.calendar(unit, zone);
    let starts = starts(start, unit, zone, from, to);
    for window in starts.windows(2) {
        let (from, to) = (window[0], window[1]);
        for t in [from, from + 1, (from + to) / 2, to - 1] {
            assert_eq!(calendar.window(t), (from, to), "{zone} {unit:?} {start:?} {t}");
        }
        let [_, own, end, after] = start.calendar(unit, zone).boundaries(to - 1);
        assert_eq!((own, end), (from, to), "{zone} {unit:?} {start:?}");
        assert_eq!(calendar.window(to), (to, after), "{zone} {unit:?} {start:?}");
    }
}

fn at(date: &str) -> Micros {
    format!("{date}T00:00:00Z").parse::<Timestamp>().unwrap().as_microsecond() as Micros
}

fn any_start() -> impl Strategy<Value = (Unit, Start)> {
    prop_oneof![
        (0..UNITS.len()).prop_map(|i| (UNITS[i], Start::Unit)),
        (1_i8..32).prop_map(|day| (Unit::Month, Start::Month(day))),
        (29_i8..32).prop_map(|day| (Unit::Month, Start::Month(day))),
        (0..WEEKDAYS.len()).prop_map(|i| (Unit::Week, Start::Week(i))),
        (0_i8..24, 0_i8..60).prop_map(|(hour, minute)| (Unit::Day, Start::Day(hour, minute))),
        (0_i8..4, prop::sample::select(vec![0, 1, 30, 59]))
            .prop_map(|(hour, minute)| (Unit::Day, Start::Day(hour, minute))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn windows_start_when_the_clocks_show_it(
        (unit, start) in any_start(),
        zone in prop::sample::select(ZONES.to_vec()),
        year in 1973_u64..2040,
        days in 70_u64..200,
    ) {
        let from = (year - 1970) * 365 * 86_400 * SECOND;
        check(&start, unit, zone, from, from + days * 86_400 * SECOND);
    }
}

#[test]
fn windows_start_as_the_clocks_change() {
    // A day that a zone skips, changes at midnight, just after it, by half an hour and by two.
    for (zone, date) in [
        ("Pacific/Apia", "2011-12-30"),
        ("Pacific/Kwajalein", "1993-08-21"),
        ("America/Sao_Paulo", "2018-11-04"),
        ("America/Sao_Paulo", "2018-02-18"),
        ("America/St_Johns", "2010-11-07"),
        ("America/St_Johns", "2010-03-14"),
        ("Africa/Cairo", "2014-05-16"),
        ("Africa/Cairo", "2014-06-27"),
        ("Australia/Lord_Howe", "2026-04-05"),
        ("Australia/Lord_Howe", "2026-10-04"),
        ("Antarctica/Troll", "2026-03-29"),
        ("Europe/Berlin", "2026-03-29"),
        ("Europe/Berlin", "2026-10-25"),
    ] {
        let (from, to) = (at(date) - 5 * 86_400 * SECOND, at(date) + 5 * 86_400 * SECOND);
        for hour in [0, 2, 3, 23] {
            for minute in [0, 30, 59] {
                check(&Start::Day(hour, minute), Unit::Day, zone, from, to);
            }
        }
        let day: i8 = date[8..].parse().unwrap();
        let month = |days: u64| days * 86_400 * SECOND;
        for start in [Start::Month(day), Start::Month(31), Start::Month(1)] {
            check(&start, Unit::Month, zone, from - month(70), to + month(70));
        }
    }
}

#[test]
fn starts_are_where_the_documentation_says() {
    for (unit, zone, starts, t, start, end) in [
        (Unit::Month, "UTC", "15", "2026-01-14T23:59", "2025-12-15T00:00", "2026-01-15T00:00"),
        (Unit::Month, "UTC", "15", "2026-01-15T00:00", "2026-01-15T00:00", "2026-02-15T00:00"),
        // The last day of shorter months.
        (Unit::Month, "UTC", "31", "2026-02-27T12:00", "2026-01-31T00:00", "2026-02-28T00:00"),
        (Unit::Month, "UTC", "31", "2026-02-28T12:00", "2026-02-28T00:00", "2026-03-31T00:00"),
        (Unit::Month, "UTC", "30", "2028-03-01T00:00", "2028-02-29T00:00", "2028-03-30T00:00"),
        (Unit::Week, "UTC", "sunday", "2026-11-28T12:00", "2026-11-22T00:00", "2026-11-29T00:00"),
        (Unit::Day, "UTC", "06:00", "2026-11-28T05:59", "2026-11-27T06:00", "2026-11-28T06:00"),
        // Clocks go from 02:00 to 03:00, and from 03:00 back to 02:00.
        (
            Unit::Day,
            "Europe/Berlin",
            "02:30",
            "2026-03-29T01:10",
            "2026-03-29T01:00",
            "2026-03-30T00:30",
        ),
        (
            Unit::Day,
            "Europe/Berlin",
            "02:30",
            "2026-10-25T01:40",
            "2026-10-25T00:30",
            "2026-10-26T01:30",
        ),
    ] {
        let micros_of = |text| format!("{text}:00Z").parse::<Timestamp>().unwrap().as_microsecond();
        let calendar = Calendar::new(unit, zone).unwrap().starting(starts).unwrap();
        let window = calendar.window(micros_of(t) as Micros);
        assert_eq!(
            window,
            (micros_of(start) as Micros, micros_of(end) as Micros),
            "{zone} {starts} {t}"
        );
    }
}

#[test]
fn other_starts_are_none() {
    for (unit, texts) in [
        (Unit::Month, ["0", "32", "monday", "06:00", "1.5", "-1", "+1", ""]),
        (Unit::Week, ["1", "mo", "mond", "06:00", "sundays", "", " monday", "8"]),
        (Unit::Day, ["24:00", "6", "06:60", "6:0", "+6:00", "06:+1", ":30", "06:00:00"]),
        (Unit::Year, ["1", "monday", "06:00", "15", "31", "january", "", "01-01"]),
    ] {
        for text in texts {
            let calendar = Calendar::new(unit, "UTC").unwrap();
            assert!(calendar.starting(text).is_none(), "{unit:?} {text:?}");
        }
    }
}

#[test]
fn the_start_of_the_unit_is_no_other_start() {
    for (unit, starts) in [(Unit::Month, "1"), (Unit::Week, "MON"), (Unit::Day, "0:00")] {
        let calendar = || Calendar::new(unit, "UTC").unwrap();
        assert_eq!(calendar().starting(starts), Some(calendar()));
        assert_eq!(calendar().starting(starts).unwrap().starts(), "");
    }
    let day = |starts| Calendar::new(Unit::Day, "UTC").unwrap().starting(starts).unwrap();
    assert_eq!(day("6:00"), day("06:00"));
    assert_ne!(day("06:00"), day("06:01"));
}
