//! Applies YAML tags, such as `!!int`, which set the type of a scalar.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use granit_parser::{ScalarStyle, Tag};

use crate::syntax::tree::{Style, Value};

/// Accepts any trailing bits, as Go does.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Returns the text and style of a scalar, according to its tag: `!!int "5"` is a number, `!!str 5` is text. The error
/// of a text that does not fit is worded as by the parser of envoyproxy/ratelimit.
pub(crate) fn resolve<'a>(
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
        let decoded = decode(&text)?;
        return Ok((Cow::Owned(decoded), Style::Text));
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
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Text(_) => "str",
        _ if is_integer => "int",
        _ => "float",
    };
    let text: String = text.chars().take(80).collect();
    Err(format!("cannot decode !!{found} `{text}` as a !!{tag}"))
}

/// Decodes base64; line breaks are ignored.
fn decode(text: &str) -> Result<String, &'static str> {
    let encoded: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes =
        BASE64.decode(encoded).map_err(|_| "!!binary value contains invalid base64 data")?;
    String::from_utf8(bytes).map_err(|_| "!!binary value is not UTF-8 text")
}

#[cfg(test)]
mod tests {
    use crate::syntax::yaml::tests::value;

    #[test]
    fn a_tag_sets_the_type_of_a_scalar_and_must_fit() {
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
