//! The types of the environment variables of envoyproxy/ratelimit (the reference, in Go). weir accepts what its parser
//! accepts, and rejects what would stop the reference from starting.

use weir_common::duration::read_duration;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VariableKind {
    Text,
    Bool,
    /// A whole number, with the least and the greatest value.
    Int(i64, i64),
    Float,
    /// A number from 0 to 1.
    Ratio,
    Duration,
    List,
    /// `key:value` with commas between them, each with exactly one colon.
    Map,
    /// One of some words, as they are.
    Word(&'static [&'static str]),
    /// One of some words, in any letter case.
    AnyCase(&'static [&'static str]),
    /// One of some words, in any letter case; and `library=word` for libraries, which only weir has.
    LogLevels(&'static [&'static str]),
}

impl VariableKind {
    pub const PORT: VariableKind = VariableKind::Int(0, 65_535);
    pub const INT: VariableKind = VariableKind::Int(i64::MIN, i64::MAX);

    pub fn accepts(self, text: &str) -> bool {
        match self {
            VariableKind::Text | VariableKind::List => true,
            VariableKind::Bool => read_bool(text).is_some(),
            VariableKind::Int(min, max) => read_int(text).is_some_and(|n| (min..=max).contains(&n)),
            VariableKind::Float => text.parse::<f64>().is_ok(),
            VariableKind::Ratio => text.parse::<f64>().is_ok_and(|n| (0.0..=1.0).contains(&n)),
            VariableKind::Duration => is_duration(text),
            VariableKind::Map => {
                text.trim().is_empty() || text.split(',').all(|pair| pair.matches(':').count() == 1)
            }
            VariableKind::Word(words) => words.contains(&text),
            VariableKind::AnyCase(words) => {
                words.iter().any(|word| word.eq_ignore_ascii_case(text))
            }
            VariableKind::LogLevels(words) => text.split(',').all(|part| {
                let level = part.split_once('=').map_or(part, |(_, level)| level).trim();
                VariableKind::AnyCase(words).accepts(level)
            }),
        }
    }

    pub fn expected(self) -> String {
        match self {
            VariableKind::Text => "text".into(),
            VariableKind::Bool => "true or false".into(),
            VariableKind::Int(i64::MIN, i64::MAX) => "a whole number".into(),
            VariableKind::Int(min, max) => format!("a whole number from {min} to {max}"),
            VariableKind::Float => "a number".into(),
            VariableKind::Ratio => "a number from 0 to 1".into(),
            VariableKind::Duration => "a duration such as 8ms, 30s or 1h30m".into(),
            VariableKind::List => "parts with commas between them".into(),
            VariableKind::Map => "key:value, with commas between several; one colon in each".into(),
            VariableKind::Word(words) | VariableKind::AnyCase(words) => {
                format!("one of {}", words.join(", "))
            }
            VariableKind::LogLevels(words) => format!(
                "one of {}; and library=level for libraries, with commas between them: \
                 info,h2=debug",
                words.join(", ")
            ),
        }
    }
}

/// Reads a switch as Go does: without yes, no, on and off.
pub fn read_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Reads a whole number as Go does, with or without a sign.
pub fn read_int(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes() {
        [b'-', ..] => (-1, &text[1..]),
        [b'+', ..] => (1, &text[1..]),
        _ => (1, text),
    };
    (i128::from(read_digits(digits)?) * sign).try_into().ok()
}

/// Reads a whole number without a sign as Go does: `0x`, `0o`, `0b`, and octal after a leading 0.
pub fn read_digits(text: &str) -> Option<u64> {
    let digits = text.replace('_', "").to_ascii_lowercase();
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x', ..] => (16, &digits[2..]),
        [b'0', b'o', ..] => (8, &digits[2..]),
        [b'0', b'b', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, &digits[..]),
    };
    // A sign would be read too.
    let is_plain = digits.bytes().next()?.is_ascii_alphanumeric();
    is_plain.then(|| u64::from_str_radix(digits, radix).ok())?
}

/// Whether Go reads this as a duration: with a sign, without days.
fn is_duration(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    // Go knows both of Unicode's signs for micro.
    !text.contains(['d', 'w']) && read_duration(&text.replace('\u{3bc}', "\u{b5}")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_in_go() {
        assert_eq!(read_digits("0x10"), Some(16));
        assert_eq!(read_digits("010"), Some(8));
        assert_eq!(read_digits("10_000"), Some(10_000));
        assert_eq!(read_digits("-1"), None);
    }

    #[test]
    fn each_kind_accepts_what_the_references_parser_accepts() {
        let good: &[(VariableKind, &[&str])] = &[
            (VariableKind::Bool, &["1", "t", "T", "true", "TRUE", "True", "0", "f", "False"]),
            (VariableKind::PORT, &["8080", "0x1F90", "0o10", "010", "0b1", "1_000", "+1", "0"]),
            (VariableKind::INT, &["-1", "0"]),
            (
                VariableKind::Duration,
                &["0", "10s", "1h30m", "-1s", "1.5h", "5\u{b5}s", "5\u{3bc}s"],
            ),
            (VariableKind::Map, &["", "a:b", "a:b,c:d", "a:"]),
            (VariableKind::AnyCase(&["WARN"]), &["warn", "Warn"]),
            (VariableKind::Ratio, &["0.8", "1", "0"]),
        ];
        for (kind, texts) in good {
            for text in *texts {
                assert!(kind.accepts(text), "{kind:?} {text:?}");
            }
        }
        let bad: &[(VariableKind, &[&str])] = &[
            (VariableKind::Bool, &["yes", "on", "tRUE", "", " true"]),
            (VariableKind::PORT, &["", "-1", "65536", "08", "0x", "1.0", "+-1", "http", "tcp://1"]),
            (VariableKind::Duration, &["", "10", "1d", "1w", "s"]),
            (VariableKind::Map, &["a", "a:b:c", "a:b,", "a:b,c"]),
            (VariableKind::Word(&["FILE"]), &["file", ""]),
            (VariableKind::Ratio, &["1.5", "NaN", ""]),
        ];
        for (kind, texts) in bad {
            for text in *texts {
                assert!(!kind.accepts(text), "{kind:?} {text:?}");
            }
        }
    }
}
