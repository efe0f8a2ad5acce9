//! Times as text, always UTC.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use weir_limit::{Micros, SECOND};

pub(super) const MINUTE: Micros = 60 * SECOND;
pub(super) const HOUR: Micros = 60 * MINUTE;
pub(super) const DAY: Micros = 24 * HOUR;

/// Returns the date and time; none beyond the year 9999.
pub(super) fn civil(at: Micros) -> Option<DateTime> {
    let timestamp = Timestamp::from_microsecond(i64::try_from(at).ok()?).ok()?;
    Some(TimeZone::UTC.to_datetime(timestamp))
}

/// Returns the time in a form, such as `%H:%M`, or its seconds since 1970 if it has no date.
pub(super) fn format(at: Micros, form: &str) -> String {
    match civil(at) {
        Some(time) => time.strftime(form).to_string(),
        None => format!("second {}", at / SECOND),
    }
}

/// Returns `2026-11-22 10:05 UTC` as an element that programs can read.
pub(super) fn minute(at: Micros) -> String {
    element(at, "%Y-%m-%d %H:%M UTC")
}

/// Returns the minute without the date where all of the traffic is of one day.
pub(super) fn clock(at: Micros, span: Option<(Micros, Micros)>) -> String {
    if is_one_day(span) { time_of_day(at) } else { minute(at) }
}

/// Returns the time between two times: `On 2026-11-22 from 10:05 to 14:05 UTC`.
pub(super) fn range(from: Micros, to: Micros) -> String {
    // Less than a few minutes would be rounded too much.
    let clock = if to.saturating_sub(from) < 10 * MINUTE { "%H:%M:%S" } else { "%H:%M" };
    let same_day = from / DAY == to / DAY;
    if same_day && format(from, clock) == format(to, clock) {
        return format!("At {}", element(from, &format!("%Y-%m-%d {clock} UTC")));
    }
    let (date, both) = match same_day {
        true => (day(from), clock.to_owned()),
        false => (String::new(), format!("%Y-%m-%d {clock}")),
    };
    let (from, to) = (element(from, &both), element(to, &format!("{both} UTC")));
    match same_day {
        true => format!("On {date} from {from} to {to}"),
        false => format!("From {from} to {to}"),
    }
}

/// Returns the day: `2026-11-22`.
pub(super) fn day(at: Micros) -> String {
    element(at, "%Y-%m-%d")
}

/// Returns the time of the day: `10:05 UTC`.
pub(super) fn time_of_day(at: Micros) -> String {
    element(at, "%H:%M UTC")
}

/// Returns whether all of the traffic is of one day, so that times need no date.
pub(super) fn is_one_day(span: Option<(Micros, Micros)>) -> bool {
    span.is_some_and(|(from, to)| from / DAY == to / DAY)
}

/// Returns a time in a form. A narrow page may break it between the date and the time of the day only.
fn element(at: Micros, form: &str) -> String {
    let text = format(at, form).replace(" UTC", "\u{a0}UTC");
    match civil(at) {
        Some(_) => {
            let machine = format(at, "%Y-%m-%dT%H:%M:%SZ");
            let parts: Vec<String> =
                text.split(' ').map(|part| format!("<span>{part}</span>")).collect();
            format!(r#"<time datetime="{machine}">{}</time>"#, parts.join(" "))
        }
        None => text.replace(' ', "\u{a0}"),
    }
}

/// Returns a width of time as what something happens per: `minute`, `10 seconds`.
pub(super) fn per(width: Micros) -> String {
    let units = [
        (DAY, "day"),
        (HOUR, "hour"),
        (MINUTE, "minute"),
        (SECOND, "second"),
        (1_000, "millisecond"),
        (1, "microsecond"),
    ];
    let whole = units.into_iter().find(|(unit, _)| width > 0 && width.is_multiple_of(*unit));
    match whole.map(|(unit, name)| (width / unit, name)) {
        Some((1, name)) => name.to_owned(),
        Some((n, name)) => format!("{n} {name}s"),
        None => "moment".to_owned(),
    }
}

/// Returns how long something took, in one or two units: `6 h 30 min`.
pub(super) fn length(time: Micros) -> String {
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")];
    let mut parts = Vec::new();
    let mut rest = time;
    for (unit, name) in units {
        if rest >= unit && parts.len() < 2 {
            parts.push(format!("{}\u{a0}{name}", super::text::number(rest / unit)));
            rest %= unit;
        } else if !parts.is_empty() {
            break;
        }
    }
    if parts.is_empty() { "less than a second".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22 10:05:00 UTC.
    const AT: Micros = 1_795_341_900 * SECOND;

    #[test]
    fn times_are_readable_by_people_and_programs() {
        let expected = "<time datetime=\"2026-11-22T10:05:00Z\"><span>2026-11-22</span> <span>10:05\u{a0}UTC</span></time>";
        assert_eq!(minute(AT), expected);
        let plain = |text: String| {
            let mut out = String::new();
            for part in text.split('<') {
                out += part.split_once('>').map_or(part, |(_, text)| text);
            }
            out.replace('\u{a0}', " ")
        };
        assert_eq!(plain(range(AT, AT + 4 * HOUR)), "On 2026-11-22 from 10:05 to 14:05 UTC");
        assert_eq!(plain(range(AT, AT + SECOND)), "On 2026-11-22 from 10:05:00 to 10:05:01 UTC");
        assert_eq!(plain(range(AT, AT)), "At 2026-11-22 10:05:00 UTC");
        let days = plain(range(AT, AT + DAY));
        assert_eq!(days, "From 2026-11-22 10:05 to 2026-11-23 10:05 UTC");
        // No time stops the page.
        assert!(range(0, u64::MAX).contains("second\u{a0}18446744073709"));
    }

    #[test]
    fn lengths_have_one_or_two_units() {
        let lengths = [0, 90 * SECOND, 6 * HOUR + 30 * MINUTE + 1, 3 * DAY + 5 * SECOND];
        let texts = lengths.map(|time| length(time).replace('\u{a0}', " "));
        assert_eq!(texts, ["less than a second", "1 min 30 s", "6 h 30 min", "3 d"]);
        let widths = [SECOND, 10 * SECOND, MINUTE, 6 * HOUR, DAY, 1_500, 0].map(per);
        let expected =
            ["second", "10 seconds", "minute", "6 hours", "day", "1500 microseconds", "moment"];
        assert_eq!(widths, expected);
    }
}
