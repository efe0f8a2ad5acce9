//! Durations as people write them.

use std::time::Duration;

/// The longest duration, in whole seconds: that of Go, some 292 years. Any time of a clock can be added to it.
const MAX_SECONDS: u64 = i64::MAX as u64 / 1_000_000_000;

/// The longest duration as people write it, for error messages.
pub const MAX_DURATION: &str = "2562047h";

/// Reads a duration: one or more numbers, each with its unit (ns, us, ms, s, m, h, d), or a bare 0. None if it is too
/// long.
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
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty() && total.as_secs() <= MAX_SECONDS).then_some(total)
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
        assert_eq!(read("0"), Some(0));
        assert_eq!(read(MAX_DURATION), Some(2_562_047 * 3_600_000_000));
        assert_eq!(read("2562047h47m16s"), Some(u128::from(MAX_SECONDS) * 1_000_000));
        for bad in ["", "10", "s", "1x", "-1s", "1h 30m", "99999999999999999999d", "2562048h"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
