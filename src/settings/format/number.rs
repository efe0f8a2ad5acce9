//! Numbers: whole ones within bounds, sizes in bytes, and ratios.

use std::marker::PhantomData;

use super::{Format, FormatKind};
use crate::settings::reference::go::read_digits;
use weir_common::number::read_size;

/// A whole number from `MIN` to `MAX`, in any base of the reference.
#[derive(Debug)]
pub struct Int<T, const MIN: u64, const MAX: u64>(PhantomData<T>);

impl<T: TryFrom<u64> + Clone, const MIN: u64, const MAX: u64> Format for Int<T, MIN, MAX> {
    type Value = T;
    const KIND: FormatKind = FormatKind::Int(MIN, MAX);

    fn parse(text: &str) -> Option<T> {
        T::try_from(read_digits(text).filter(|n| (MIN..=MAX).contains(n))?).ok()
    }
}

/// A size in bytes: `64MiB`, `1MB`, or a bare number.
#[derive(Debug)]
pub struct Bytes<T>(PhantomData<T>);

impl<T: TryFrom<u64> + Clone> Format for Bytes<T> {
    type Value = T;
    const KIND: FormatKind = FormatKind::Bytes;

    fn parse(text: &str) -> Option<T> {
        T::try_from(read_size(text)?).ok()
    }
}

/// A number from 0 to 1.
#[derive(Debug)]
pub struct Ratio;

impl Format for Ratio {
    type Value = f32;
    const KIND: FormatKind = FormatKind::Ratio;

    fn parse(text: &str) -> Option<f32> {
        text.parse().ok().filter(|n| (0.0..=1.0).contains(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_bounds() {
        assert_eq!(Int::<u32, 1, 10>::parse("10"), Some(10));
        assert_eq!(Int::<u32, 1, 10>::parse("0"), None);
        assert_eq!(Int::<u32, 1, 10>::parse("11"), None);
        assert_eq!(Bytes::<u64>::parse("8GiB"), Some(8 << 30));
        assert_eq!(Bytes::<u32>::parse("8GiB"), None, "too large for the type");
    }
}
