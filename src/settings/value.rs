//! What a setting may hold, and how each kind is read from text.

use std::time::Duration;

use config::{Value, ValueKind};

use crate::duration::read_duration;

/// The kind of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Bool,
    /// A whole number of at least the first and at most the second.
    Int(u64, u64),
    /// A number from 0 to 1.
    Ratio,
    Text,
    /// `8ms`, `1h30m`, `7d`; a bare 0 is none.
    Duration,
    /// The word `auto`, or a duration.
    AutoOrDuration,
    /// `64MiB`, `1MB`, or a bare number of bytes.
    Bytes,
    /// `host:port`, the host of IPv6 in brackets; `:port` is that port on all addresses.
    Address,
    /// A list, or text with commas between its parts.
    List,
    /// One of these words, in any letter case.
    Choice(&'static [&'static str]),
}

/// A value that was read and is of its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    Bool(bool),
    Int(u64),
    Ratio(f32),
    Text(String),
    Duration(Duration),
    Auto,
    List(Vec<String>),
    Choice(&'static str),
}

impl Kind {
    /// Reads a value, or says what was wanted instead.
    pub fn read(self, value: &Value) -> Result<Parsed, String> {
        if let (Kind::List, ValueKind::Array(items)) = (self, &value.kind) {
            let items = items.iter().map(|item| text(item).ok_or_else(|| self.wanted()));
            return Ok(Parsed::List(items.collect::<Result<_, _>>()?));
        }
        let text = text(value).ok_or_else(|| self.wanted())?;
        self.read_text(&text).ok_or_else(|| self.wanted())
    }

    fn read_text(self, text: &str) -> Option<Parsed> {
        Some(match self {
            Kind::Bool => Parsed::Bool(read_bool(text)?),
            Kind::Int(min, max) => Parsed::Int(read_int(text).filter(|n| (min..=max).contains(n))?),
            Kind::Ratio => Parsed::Ratio(text.parse().ok().filter(|n| (0.0..=1.0).contains(n))?),
            Kind::Text => Parsed::Text(text.to_owned()),
            Kind::Duration => Parsed::Duration(read_duration(text)?),
            Kind::AutoOrDuration if text.eq_ignore_ascii_case("auto") => Parsed::Auto,
            Kind::AutoOrDuration => Parsed::Duration(read_duration(text)?),
            Kind::Bytes => Parsed::Int(read_bytes(text)?),
            Kind::Address => {
                let (host, port) = text.rsplit_once(':')?;
                port.parse::<u16>().ok()?;
                let bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
                bare.then(|| Parsed::Text(text.to_owned()))?
            }
            Kind::List if text.is_empty() => Parsed::List(Vec::new()),
            Kind::List => {
                Parsed::List(text.split(',').map(|part| part.trim().to_owned()).collect())
            }
            Kind::Choice(words) => {
                Parsed::Choice(words.iter().find(|word| word.eq_ignore_ascii_case(text))?)
            }
        })
    }

    /// What a value of this kind looks like.
    pub fn wanted(self) -> String {
        match self {
            Kind::Bool => "true or false".into(),
            Kind::Int(min, u64::MAX) => format!("a whole number of at min {min}"),
            Kind::Int(min, max) => format!("a whole number from {min} to {max}"),
            Kind::Ratio => "a number from 0 to 1".into(),
            Kind::Text => "text".into(),
            Kind::Duration => "a duration such as 8ms, 30s or 1h30m".into(),
            Kind::AutoOrDuration => "auto, or a duration such as 8ms, 30s or 1h30m".into(),
            Kind::Bytes => "a size such as 64KiB, 1MiB, or a number of bytes".into(),
            Kind::Address => {
                "host:port, such as 0.0.0.0:8081, [::]:8081, or :8081 for all addresses".into()
            }
            Kind::List => "a list, or text with commas between its parts".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }
}

/// A scalar as text.
pub(super) fn text(value: &Value) -> Option<String> {
    match &value.kind {
        ValueKind::Boolean(b) => Some(b.to_string()),
        ValueKind::I64(n) => Some(n.to_string()),
        ValueKind::I128(n) => Some(n.to_string()),
        ValueKind::U64(n) => Some(n.to_string()),
        ValueKind::U128(n) => Some(n.to_string()),
        ValueKind::Float(n) => Some(n.to_string()),
        ValueKind::String(s) => Some(s.clone()),
        ValueKind::Nil | ValueKind::Table(_) | ValueKind::Array(_) => None,
    }
}

fn read_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "t" | "true" | "y" | "yes" | "on" => Some(true),
        "0" | "f" | "false" | "n" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// A whole number; `0x`, `0o` and `0b` and a leading 0 (octal) as the reference reads them.
fn read_int(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    let lower = text.to_ascii_lowercase();
    match lower.as_bytes() {
        [b'0', b'x', ..] => u64::from_str_radix(&lower[2..], 16).ok(),
        [b'0', b'o', ..] => u64::from_str_radix(&lower[2..], 8).ok(),
        [b'0', b'b', ..] => u64::from_str_radix(&lower[2..], 2).ok(),
        [b'0', _, ..] => u64::from_str_radix(&lower[1..], 8).ok(),
        [b'0'..=b'9', ..] => lower.parse().ok(),
        _ => None,
    }
}

fn read_bytes(text: &str) -> Option<u64> {
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
    fn durations_may_be_auto() {
        let read = |text| Kind::AutoOrDuration.read_text(text);
        assert_eq!(read("auto"), Some(Parsed::Auto));
        assert_eq!(read("AUTO"), Some(Parsed::Auto));
        assert_eq!(read("8ms"), Some(Parsed::Duration(Duration::from_millis(8))));
        assert_eq!(read("automatic"), None);
        assert_eq!(read(""), None);
        assert_eq!(Kind::Duration.read_text("auto"), None);
    }

    #[test]
    fn numbers_sizes_and_addresses() {
        assert_eq!(read_int("0x10"), Some(16));
        assert_eq!(read_int("010"), Some(8));
        assert_eq!(read_int("10_000"), Some(10_000));
        assert_eq!(read_int("-1"), None);
        assert_eq!(read_bytes("64MiB"), Some(64 << 20));
        assert_eq!(read_bytes("1.5MiB"), None);
        assert!(Kind::Address.read_text("[::]:80").is_some());
        assert!(Kind::Address.read_text("localhost:0").is_some());
        assert!(Kind::Address.read_text(":8081").is_some());
        for bad in ["8081", ":::80", "host:99999", "host:", ":", ":x"] {
            assert!(Kind::Address.read_text(bad).is_none(), "{bad}");
        }
    }
}
