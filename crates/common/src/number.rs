//! Whole numbers as arguments.

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

/// Returns a parser of all numbers of 32 bits.
pub fn whole_u32() -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    whole(0..=u32::MAX.into())
}

/// Returns a parser of counts without a bound of their own.
pub fn count() -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    whole(0..=u64::MAX)
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
}
