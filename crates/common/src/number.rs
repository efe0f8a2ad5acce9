//! Parses whole numbers and sizes in bytes, for arguments of commands and for settings.

use std::ops::RangeInclusive;

/// Returns a parser of whole numbers in a range. Its error names the range.
pub fn whole<T: TryFrom<u64> + 'static>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| {
            format!("write a whole number from {} to {}", range.start(), range.end())
        })
    }
}

pub fn whole_u32() -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    whole(0..=u32::MAX.into())
}

/// Returns a parser of counts, of any size.
pub fn count() -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    whole(0..=u64::MAX)
}

/// What to write for a size, for errors.
pub const SIZE_EXPECTED: &str = "a size such as 64KiB, 1MiB, or a number of bytes";

/// Parses a size, as [`read_size`] does. Its error names what to write.
pub fn parse_size(text: &str) -> Result<u64, String> {
    read_size(text).ok_or_else(|| format!("write {SIZE_EXPECTED}"))
}

/// Reads `64MiB`, `1MB`, or a number of bytes.
pub fn read_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_range_are_errors_that_name_it() {
        let parse = whole::<u16>(1..=10_000);
        assert_eq!((parse("1"), parse("10000")), (Ok(1), Ok(10_000)));
        for wrong in ["", "0", "10001", "-1", "1.5", "ten", "18446744073709551616"] {
            let error = "write a whole number from 1 to 10000";
            assert_eq!(parse(wrong), Err(error.to_owned()), "{wrong}");
        }
        assert_eq!(whole_u32()("4294967295"), Ok(u32::MAX));
        assert!(whole_u32()("4294967296").unwrap_err().ends_with("from 0 to 4294967295"));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("100"), Ok(100));
        assert_eq!(read_size("1.5MiB"), None);
        let error = parse_size("64 parsecs").unwrap_err();
        assert_eq!(error, "write a size such as 64KiB, 1MiB, or a number of bytes");
    }
}
