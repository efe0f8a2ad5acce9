//! Parses and formats durations as people write them, such as `1h30m`, for settings, rules and messages.

use std::time::Duration;

/// The longest duration, in whole seconds: that of Go, some 292 years. Any time of a clock can be added to it.
const MAX_SECONDS: u64 = i64::MAX as u64 / 1_000_000_000;

/// The longest duration as people write it, for error messages.
pub const MAX_DURATION: &str = "2562047h";

/// Reads one or more numbers, each with its unit (ns, us, ms, s, m, h, d, w), or a bare 0. None if invalid or too long.
pub fn read_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty() && total.as_secs() <= MAX_SECONDS).then_some(total)
}

/// The units of a duration as it is shown, in seconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Returns a duration by all of its units: `1h30m`, `1m1.5s`, `5ms`.
pub fn exact(duration: Duration) -> String {
    let (mut seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    let mut shown = String::new();
    for (name, unit) in &UNITS[..3] {
        if seconds >= *unit {
            shown += &format!("{}{name}", seconds / unit);
            seconds %= unit;
        }
    }
    let (whole, fraction, unit) = match seconds {
        0 if nanos == 0 && !shown.is_empty() => return shown,
        0 if nanos > 0 => (u64::from(nanos / 1_000_000), format!("{:06}", nanos % 1_000_000), "ms"),
        seconds => (seconds, format!("{nanos:09}"), "s"),
    };
    match fraction.trim_end_matches('0') {
        "" => format!("{shown}{whole}{unit}"),
        fraction => format!("{shown}{whole}.{fraction}{unit}"),
    }
}

/// Returns a number of milliseconds by its two largest units, rounded: `2d3h`, `59m58s`, `0s`.
pub fn rounded(millis: u64) -> String {
    if (1..1_000).contains(&millis) {
        return format!("{millis}ms");
    }
    let seconds = millis.div_ceil(1_000);
    let largest = UNITS.iter().position(|(_, unit)| seconds >= *unit);
    let Some(first) = largest else { return "0s".to_owned() };
    let (name, unit) = UNITS[first];
    let mut shown = format!("{}{name}", seconds / unit);
    if let Some((name, smaller)) = UNITS.get(first + 1)
        && let rest @ 1.. = seconds % unit / smaller
    {
        shown += &format!("{rest}{name}");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let read = |text| read_duration(text).map(|d| d.as_micros());
        assert_eq!(read("8ms"), Some(8_000));
        assert_eq!(read("1h30m"), Some(5_400_000_000));
        assert_eq!(read("1.5s"), Some(1_500_000));
        assert_eq!(read("7d"), Some(604_800_000_000));
        assert_eq!(read("1w"), Some(604_800_000_000));
        assert_eq!(read("0"), Some(0));
        assert_eq!(read(MAX_DURATION), Some(2_562_047 * 3_600_000_000));
        assert_eq!(read("2562047h47m16s"), Some(u128::from(MAX_SECONDS) * 1_000_000));
        for bad in ["", "10", "s", "1x", "-1s", "1h 30m", "99999999999999999999d", "2562048h"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn exact_durations_are_read_as_the_same() {
        for (micros, text) in [
            (0, "0s"),
            (5_000, "5ms"),
            (1_500, "1.5ms"),
            (999_999, "999.999ms"),
            (60_000_000, "1m"),
            (61_500_000, "1m1.5s"),
            (60_005_000, "1m5ms"),
            (5_400_000_000, "1h30m"),
            (31_536_000_000_000, "365d"),
            (1_500_000, "1.5s"),
            (59_995_000, "59.995s"),
        ] {
            let duration = Duration::from_micros(micros);
            assert_eq!(exact(duration), text);
            assert_eq!(read_duration(text), Some(duration));
        }
    }

    #[test]
    fn rounded_durations_have_their_two_largest_units() {
        for (millis, shown) in [
            (0, "0s"),
            (1, "1ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_001, "2s"),
            (59_999, "1m"),
            (3_598_000, "59m58s"),
            (3_600_000, "1h"),
            (3_601_000, "1h"),
            (90_000_000, "1d1h"),
            (31_536_000_000, "365d"),
        ] {
            assert_eq!(rounded(millis), shown);
        }
    }
}
