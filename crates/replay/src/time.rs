//! Parses the times in the logs of `weir replay`: RFC 3339, Apache's form, and numbers since 1970.

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;

use weir_limit::{Micros, SECOND};

/// The first time that is too late: 2100-01-01T00:00:00Z. Milliseconds that are read as seconds are later.
const END: Micros = 4_102_444_800 * SECOND;

pub(super) const HELP: &str = "expected RFC 3339, such as 2026-01-01T00:00:00.000Z, the time of Apache, such as \
                               01/Jan/2026:00:00:00 +0000, or seconds, milliseconds, microseconds or \
                               nanoseconds since 1970";

/// Reads a time between 1970 and 2100: RFC 3339, or a number since the Unix epoch, whose unit its size
/// shows.
pub(super) fn read_time(text: &str) -> Option<Micros> {
    let time = match read_utc(text.as_bytes()) {
        Some(time) => Some(time),
        None if text.as_bytes().get(2) == Some(&b'/') => read_common(text),
        None if text.contains(['-', ':']) => read_timestamp(text),
        None => read_number(text),
    };
    time.filter(|time| *time < END)
}

/// Converts a time of a log, which is before 2100, to a timestamp.
pub(super) fn stamp(time: Micros) -> Timestamp {
    Timestamp::from_microsecond(time as i64).unwrap_or_default()
}

fn read_timestamp(text: &str) -> Option<Micros> {
    let time: Timestamp = text.parse().ok()?;
    Micros::try_from(time.as_nanosecond() / 1_000).ok()
}

/// Reads `22/Nov/2026:10:00:00 +0000`, as Apache and nginx write it.
fn read_common(text: &str) -> Option<Micros> {
    let time = Timestamp::strptime("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    Micros::try_from(time.as_microsecond()).ok()
}

/// Reads a number. Ten digits are seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds.
fn read_number(text: &str) -> Option<Micros> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let number: u64 = whole.parse().ok()?;
    let digits = match number {
        0..100_000_000_000 => 6,
        100_000_000_000..100_000_000_000_000 => 3,
        100_000_000_000_000..100_000_000_000_000_000 => 0,
        _ => return Some(number / 1_000),
    };
    let part = fraction.bytes().chain(std::iter::repeat(b'0')).take(digits);
    let part = part.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    number.checked_mul(10u64.pow(digits as u32))?.checked_add(part)
}

/// Reads `2026-01-01T00:00:00.000Z` alone, with up to six decimals. Anything else is left to the slow path.
fn read_utc(text: &[u8]) -> Option<Micros> {
    let (fixed, rest) = text.split_at_checked(19)?;
    let &[y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', n0, n1, b':', s0, s1] =
        fixed
    else {
        return None;
    };
    let year = i16::from(two(y0, y1)?) * 100 + i16::from(two(y2, y3)?);
    let date = Date::new(year, two(m0, m1)?, two(d0, d1)?).ok()?;
    let time = Time::new(two(h0, h1)?, two(n0, n1)?, two(s0, s1)?, 0).ok()?;
    let stamp = Offset::UTC.to_timestamp(date.to_datetime(time)).ok()?;
    let micros = match rest {
        [b'Z'] => 0,
        [b'.', decimals @ .., b'Z'] if (1..=6).contains(&decimals.len()) => {
            let number = |sum, byte: &u8| Some(sum * 10 + u64::from(digit(*byte)?));
            decimals.iter().try_fold(0, number)? * 10u64.pow(6 - decimals.len() as u32)
        }
        _ => return None,
    };
    Some(Micros::try_from(stamp.as_microsecond()).ok()? + micros)
}

fn two(a: u8, b: u8) -> Option<i8> {
    i8::try_from(digit(a)? * 10 + digit(b)?).ok()
}

fn digit(byte: u8) -> Option<u8> {
    byte.is_ascii_digit().then(|| byte - b'0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_as_logs_write_them() {
        let time = 1_767_323_045 * SECOND;
        for (text, expected) in [
            ("2026-01-02T03:04:05Z", time),
            ("2026-01-02T03:04:05.25Z", time + SECOND / 4),
            ("2026-01-02T03:04:05.123456789Z", time + 123_456),
            ("2026-01-02T05:04:05+02:00", time),
            ("2026-01-02 03:04:05Z", time),
            ("02/Jan/2026:03:04:05 +0000", time),
            ("02/Jan/2026:05:04:05 +0200", time),
            ("01/Jan/2026:22:34:05 -0430", time),
            ("29/Feb/2024:00:00:00 +0000", 1_709_164_800 * SECOND),
            ("1767323045", time),
            ("1767323045.5", time + SECOND / 2),
            ("1767323045.1234567", time + 123_456),
            ("1767323045123", time + 123_000),
            ("1767323045123.4", time + 123_400),
            ("1767323045123456", time + 123_456),
            ("1767323045123456789", time + 123_456),
            ("2024-02-29T00:00:00Z", 1_709_164_800 * SECOND),
        ] {
            assert_eq!(read_time(text), Some(expected), "{text}");
        }
        for text in [
            "29/Feb/2026:00:00:00 +0000",
            "31/Apr/2026:00:00:00 +0000",
            "01/Jan/1970:00:00:00 +0200",
            "02/Jan/2026:03:04:05",
            "",
            "-",
            "now",
            "-1",
            "1e9",
            "2026-01-02",
            "2026-02-30T00:00:00Z",
            "2026-01-02T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2100-01-01T00:00:00Z",
            "2026-01-02T03:04:05.Z",
            "1.2.3",
            "5000000000",
        ] {
            assert_eq!(read_time(text), None, "{text}");
        }
    }

    proptest! {
        /// The fast path reads what the library reads, from the first day to the last.
        #[test]
        fn the_fast_path_agrees(
            second in prop_oneof![0..END / SECOND, Just(0), Just(END / SECOND - 1)],
            micro in 0..SECOND,
            decimals in 0..=6usize,
        ) {
            let time = second * SECOND + micro / 10u64.pow(6 - decimals as u32) * 10u64.pow(6 - decimals as u32);
            let stamp = Timestamp::from_microsecond(time as i64).unwrap();
            let text = match decimals {
                0 => stamp.to_string(),
                _ => format!("{stamp:.decimals$}"),
            };
            prop_assert_eq!(read_timestamp(&text), Some(time), "{}", text);
            prop_assert_eq!(read_utc(text.as_bytes()), Some(time), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "[0-9TZ:.+ -]{0,30}") {
            let _ = read_time(&text);
        }
    }
}
