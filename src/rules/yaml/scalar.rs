//! What scalars are: as the reference's parser has them, which reads YAML 1.1. `yes` and `on` are
//! booleans, `010` is eight.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use granit_parser::{ScalarStyle, Tag};

/// What a scalar is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Text(&'a str),
    /// A float, a time or an integer beyond 64 bits: nothing that a rule file holds.
    Other,
}

/// What decides what a scalar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// What it looks like.
    Plain,
    /// Quotes, a block or a tag: it is text.
    Text,
    /// A tag: it is a float or a time.
    Other,
}

/// Whatever bits end an encoding are accepted, as Go does.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The text and style of a scalar: a tag says what the text is to be, so that `!!int "5"` is a
/// number and `!!str 5` is none.
///
/// # Errors
/// The text is not what the tag says, in the words of the reference's parser.
pub(super) fn resolve<'a>(
    text: Cow<'a, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
) -> Result<(Cow<'a, str>, Style), String> {
    let Some(tag) = tag else {
        let style = if style == ScalarStyle::Plain { Style::Plain } else { Style::Text };
        return Ok((text, style));
    };
    let tag = tag.suffix_in_namespace("tag:yaml.org,2002:").unwrap_or_default();
    if tag == "binary" {
        return Ok((Cow::Owned(decode(&text)?), Style::Text));
    }
    let value = Style::Plain.value(&text);
    // Go has unsigned integers too.
    let is_integer = matches!(value, Value::Int(_)) || text.replace('_', "").parse::<u64>().is_ok();
    let (fits, style) = match &*tag {
        "int" => (is_integer, Style::Plain),
        "float" => (is_integer || value == Value::Other, Style::Other),
        "bool" => (matches!(value, Value::Bool(_)), Style::Plain),
        "null" => (value == Value::Null, Style::Plain),
        "timestamp" => (true, Style::Other),
        _ => (true, Style::Text),
    };
    if fits {
        return Ok((text, style));
    }
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Text(_) => "str",
        _ if is_integer => "int",
        _ => "float",
    };
    let text: String = text.chars().take(80).collect();
    Err(format!("cannot decode !!{is} `{text}` as a !!{tag}"))
}

/// The text that base64 stands for; line breaks in it do not count.
fn decode(text: &str) -> Result<String, String> {
    let encoded: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = BASE64
        .decode(encoded)
        .map_err(|_| "!!binary value contains invalid base64 data".to_owned())?;
    String::from_utf8(bytes).map_err(|_| "!!binary value is not UTF-8 text".to_owned())
}

impl Style {
    /// What a text is.
    pub(super) fn value(self, text: &str) -> Value<'_> {
        match self {
            Style::Plain => plain(text),
            Style::Text => Value::Text(text),
            Style::Other => Value::Other,
        }
    }
}

fn plain(text: &str) -> Value<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        _ if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            Value::Text(text)
        }
        _ => number(text),
    }
}

/// What begins like a number: an integer, something else that is no text, or text after all.
fn number(text: &str) -> Value<'_> {
    let digits = text.replace('_', "");
    let (negative, magnitude) = match digits.strip_prefix(['+', '-']) {
        Some(rest) => (digits.starts_with('-'), rest),
        None => (false, digits.as_str()),
    };
    let (radix, magnitude) = match magnitude.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &magnitude[2..]),
        [b'0', b'b' | b'B', ..] => (2, &magnitude[2..]),
        [b'0', b'o' | b'O', ..] => (8, &magnitude[2..]),
        [b'0', _, ..] => (8, &magnitude[1..]),
        _ => (10, magnitude),
    };
    if !magnitude.is_empty() && magnitude.chars().all(|c| c.is_digit(radix)) {
        let signed = format!("{}{magnitude}", if negative { "-" } else { "" });
        return i64::from_str_radix(&signed, radix).map_or(Value::Other, Value::Int);
    }
    if is_float(&digits) { Value::Other } else { Value::Text(text) }
}
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN")
        || (unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && unsigned.contains(|c: char| c.is_ascii_digit())
            && unsigned.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use crate::rules::yaml::parse;

    fn value(text: &str) -> String {
        match parse(text) {
            Ok(node) => format!("{:?}", node.unwrap().value().unwrap()),
            Err(broken) => broken.message,
        }
    }

    #[test]
    fn scalars_mean_what_yaml_1_1_says() {
        for (text, wanted) in [
            ("5", "Int(5)"),
            ("0x10", "Int(16)"),
            ("0b11", "Int(3)"),
            ("010", "Int(8)"),
            ("0o10", "Int(8)"),
            ("1_000", "Int(1000)"),
            ("-7", "Int(-7)"),
            ("9223372036854775808", "Other"),
            ("1.5", "Other"),
            ("5.0", "Other"),
            ("1e3", "Other"),
            (".inf", "Other"),
            ("2001-12-14", "Text(\"2001-12-14\")"),
            ("yes", "Bool(true)"),
            ("Off", "Bool(false)"),
            ("~", "Null"),
            ("\"5\"", "Text(\"5\")"),
            ("'yes'", "Text(\"yes\")"),
            ("10.0.0.1", "Text(\"10.0.0.1\")"),
            ("1-2-3", "Text(\"1-2-3\")"),
            ("08", "Other"),
            ("hello", "Text(\"hello\")"),
        ] {
            assert_eq!(value(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_tag_says_what_a_scalar_is_and_must_fit() {
        for (text, wanted) in [
            ("!!str 5", "Text(\"5\")"),
            ("!!int '5'", "Int(5)"),
            ("!!int 18446744073709551615", "Other"),
            ("!!int 1.5", "cannot decode !!float `1.5` as a !!int"),
            ("!!int abc", "cannot decode !!str `abc` as a !!int"),
            ("!!bool yes", "Bool(true)"),
            ("!!bool 1", "cannot decode !!int `1` as a !!bool"),
            ("!!null ~", "Null"),
            ("!!null x", "cannot decode !!str `x` as a !!null"),
            ("!!float 3", "Other"),
            ("!!float '3'", "Other"),
            ("!!float 1.5", "Other"),
            ("!!float yes", "cannot decode !!bool `yes` as a !!float"),
            ("!!timestamp 2001-12-14", "Other"),
            ("!own yes", "Text(\"yes\")"),
            ("!<tag:yaml.org,2002:float> 3", "Other"),
        ] {
            assert_eq!(value(text), wanted, "{text}");
        }
    }

    #[test]
    fn binary_scalars_are_decoded() {
        let bad = "!!binary value contains invalid base64 data";
        for (text, wanted) in [
            ("!!binary aGVsbG8=", "Text(\"hello\")"),
            ("!!binary 'aGVsbG8='", "Text(\"hello\")"),
            ("!!binary |\n  aGVs\n  bG8=\n", "Text(\"hello\")"),
            ("!!binary ''", "Text(\"\")"),
            ("!!binary eWVz", "Text(\"yes\")"),
            // Bits beyond the last byte, which Go ignores.
            ("!!binary aGVsbG9=", "Text(\"hello\")"),
            ("!!binary aGVsbG8", bad),
            ("!!binary aGVs bG8=", bad),
            ("!!binary aGVs-G8=", bad),
            ("!!binary /w==", "!!binary value is not UTF-8 text"),
        ] {
            assert_eq!(value(text), wanted, "{text}");
        }
    }
}
