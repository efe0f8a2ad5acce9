//! The formats of settings: how each is written, and the Rust type it is read as.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use config::{Value, ValueKind};
use percent_encoding::percent_decode_str;

use crate::settings::reference::go::read_digits;
use weir_common::duration::{MAX_DURATION, read_duration};
use weir_common::number::{SIZE_EXPECTED, read_size};

/// How a setting is written. Plain types such as `bool` and `Duration` are formats of themselves.
pub trait Format {
    type Value: Clone;
    const KIND: FormatKind;
    /// Whether values are masked wherever they would be shown.
    const IS_SECRET: bool = false;

    /// Reads a value from text, as variables and flags have it.
    fn parse(text: &str) -> Option<Self::Value>;

    /// Reads a value from a settings file.
    fn read(value: &Value) -> Option<Self::Value> {
        Self::parse(&text(value)?)
    }

    /// Returns a value as `--print-settings` shows it: `masked` hides what is secret in a text.
    fn shown(value: &Value, masked: impl Fn(&str) -> String) -> String {
        format!("{:?}", masked(&written(value)))
    }
}

/// What a format looks like: for the documentation and for error messages.
#[derive(Clone, Copy, Debug)]
pub enum FormatKind {
    Bool,
    /// The least and the greatest value.
    Int(u64, u64),
    Ratio,
    Text,
    Duration,
    AutoOrDuration,
    Bytes,
    Address,
    List,
    LogLevels,
    /// The words, as a function returns them.
    Choice(fn() -> Vec<&'static str>),
}

impl FormatKind {
    /// Returns what to write, for an error message.
    pub fn expected(self) -> String {
        match self {
            FormatKind::Bool => "true or false".into(),
            FormatKind::Int(min, max) => format!("a whole number from {min} to {max}"),
            FormatKind::Ratio => "a number from 0 to 1".into(),
            FormatKind::Text => "text".into(),
            FormatKind::Duration => {
                format!("a duration such as 8ms, 30s or 1h30m, up to {MAX_DURATION}")
            }
            FormatKind::AutoOrDuration => format!("auto, or {}", FormatKind::Duration.expected()),
            FormatKind::Bytes => SIZE_EXPECTED.into(),
            FormatKind::Address => {
                "host:port, such as 127.0.0.1:8081, [::1]:8081, or :8081 for all addresses".into()
            }
            FormatKind::List => "a list, or text with commas between its parts".into(),
            FormatKind::LogLevels => {
                "off, error, warn, info, debug or trace; and library=level for libraries, with \
                 commas between them: info,h2=debug"
                    .into()
            }
            FormatKind::Choice(words) => format!("one of {}", words().join(", ")),
        }
    }
}

impl Format for bool {
    type Value = bool;
    const KIND: FormatKind = FormatKind::Bool;

    fn parse(text: &str) -> Option<bool> {
        match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "true" | "y" | "yes" | "on" => Some(true),
            "0" | "f" | "false" | "n" | "no" | "off" => Some(false),
            _ => None,
        }
    }
}

impl Format for String {
    type Value = String;
    const KIND: FormatKind = FormatKind::Text;

    fn parse(text: &str) -> Option<String> {
        Some(text.to_owned())
    }
}

impl Format for PathBuf {
    type Value = PathBuf;
    const KIND: FormatKind = FormatKind::Text;

    fn parse(text: &str) -> Option<PathBuf> {
        Some(text.into())
    }
}

/// Text that is never shown.
#[derive(Debug)]
pub struct Secret;

impl Format for Secret {
    type Value = String;
    const KIND: FormatKind = FormatKind::Text;
    const IS_SECRET: bool = true;

    fn parse(text: &str) -> Option<String> {
        Some(text.to_owned())
    }
}

/// One or more numbers with their units: `8ms`, `1h30m`, `7d`; or a bare 0.
impl Format for Duration {
    type Value = Duration;
    const KIND: FormatKind = FormatKind::Duration;

    fn parse(text: &str) -> Option<Duration> {
        read_duration(text)
    }
}

/// A duration, or the word `auto` for none.
#[derive(Debug)]
pub struct AutoOrDuration;

impl Format for AutoOrDuration {
    type Value = Option<Duration>;
    const KIND: FormatKind = FormatKind::AutoOrDuration;

    fn parse(text: &str) -> Option<Option<Duration>> {
        let is_auto = text.eq_ignore_ascii_case("auto");
        if is_auto { Some(None) } else { read_duration(text).map(Some) }
    }
}

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

/// `host:port`, with an IPv6 host in brackets. `:port` is that port on all addresses.
#[derive(Debug)]
pub struct Address;

impl Format for Address {
    type Value = String;
    const KIND: FormatKind = FormatKind::Address;

    fn parse(text: &str) -> Option<String> {
        let (host, port) = text.rsplit_once(':')?;
        port.parse::<u16>().ok()?;
        let is_host = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        is_host.then(|| text.to_owned())
    }
}

/// A setting that may be unset: its text is empty then.
impl<F: Format> Format for Option<F> {
    type Value = Option<F::Value>;
    const KIND: FormatKind = F::KIND;
    const IS_SECRET: bool = F::IS_SECRET;

    fn parse(text: &str) -> Option<Option<F::Value>> {
        match text {
            "" => Some(None),
            text => F::parse(text).map(Some),
        }
    }
}

/// A list, or text with commas between its parts.
impl<F: Format> Format for Vec<F> {
    type Value = Vec<F::Value>;
    const KIND: FormatKind = FormatKind::List;
    const IS_SECRET: bool = F::IS_SECRET;

    fn parse(text: &str) -> Option<Vec<F::Value>> {
        parts(text).map(F::parse).collect()
    }

    fn read(value: &Value) -> Option<Vec<F::Value>> {
        match &value.kind {
            ValueKind::Array(items) => items.iter().map(F::read).collect(),
            _ => Self::parse(&text(value)?),
        }
    }

    fn shown(value: &Value, masked: impl Fn(&str) -> String) -> String {
        let items: Vec<String> = match &value.kind {
            ValueKind::Array(items) => items.iter().map(written).collect(),
            _ => parts(&written(value)).map(str::to_owned).collect(),
        };
        let shown: Vec<_> = items.iter().map(|item| masked(item)).collect();
        format!("{shown:?}")
    }
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(move |_| !list.is_empty())
}

/// Returns a scalar as text; none for a list or a table.
pub(super) fn text(value: &Value) -> Option<String> {
    match &value.kind {
        ValueKind::Nil | ValueKind::Table(_) | ValueKind::Array(_) => None,
        scalar => Some(scalar.to_string()),
    }
}

pub(super) fn written(value: &Value) -> String {
    text(value).unwrap_or_else(|| value.to_string())
}

/// A type with a word for each of its values, in any letter case.
pub trait Choice: Copy + 'static {
    const ALL: &'static [Self];

    fn word(self) -> &'static str;
}

impl<T: Choice> Format for T {
    type Value = T;
    const KIND: FormatKind =
        FormatKind::Choice(|| T::ALL.iter().map(|choice| choice.word()).collect());

    fn parse(text: &str) -> Option<T> {
        T::ALL.iter().copied().find(|choice| choice.word().eq_ignore_ascii_case(text))
    }
}

/// Decodes a percent-encoded text; `None` if a `%` is not followed by two hexadecimal digits.
pub(super) fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let is_escape = |(at, _)| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    text.match_indices('%').all(is_escape).then(|| percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::table::StoreKind;

    #[test]
    fn durations_may_be_auto() {
        assert_eq!(AutoOrDuration::parse("auto"), Some(None));
        assert_eq!(AutoOrDuration::parse("AUTO"), Some(None));
        assert_eq!(AutoOrDuration::parse("8ms"), Some(Some(Duration::from_millis(8))));
        assert_eq!(AutoOrDuration::parse("automatic"), None);
        assert_eq!(AutoOrDuration::parse(""), None);
        assert_eq!(Duration::parse("auto"), None);
    }

    #[test]
    fn optional_values_and_lists_may_be_empty() {
        assert_eq!(Option::<Secret>::parse(""), Some(None));
        assert_eq!(Option::<Secret>::parse("x"), Some(Some("x".into())));
        assert_eq!(Vec::<String>::parse(""), Some(Vec::new()));
        assert_eq!(Vec::<String>::parse("a, b"), Some(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        assert_eq!(Int::<u32, 1, 10>::parse("10"), Some(10));
        assert_eq!(Int::<u32, 1, 10>::parse("0"), None);
        assert_eq!(Int::<u32, 1, 10>::parse("11"), None);
        assert_eq!(Bytes::<u64>::parse("8GiB"), Some(8 << 30));
        assert_eq!(Bytes::<u32>::parse("8GiB"), None, "too large for the type");
    }

    #[test]
    fn addresses_have_a_port() {
        for good in ["[::]:80", "localhost:0", ":8081"] {
            assert!(Address::parse(good).is_some(), "{good}");
        }
        for bad in ["8081", ":::80", "host:99999", "host:", ":", ":x"] {
            assert!(Address::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn words_are_read_in_any_letter_case() {
        assert_eq!(StoreKind::parse("Redis"), Some(StoreKind::Redis));
        assert_eq!(StoreKind::parse("disks"), None);
    }

    #[test]
    fn only_whole_escapes_are_decoded() {
        let decoded = |text| percent_decoded(text).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(decoded("a%20b%c3%A4%25"), Some("a b\u{e4}%".to_owned()));
        assert_eq!(decoded("%2541"), Some("%41".to_owned()));
        for bad in ["%", "%4", "a%zz", "%+9", "% 9", "%%41", "%\u{e4}"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
