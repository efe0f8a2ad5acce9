//! Interprets the text of YAML scalars as the parser of envoyproxy/ratelimit does, which follows YAML 1.1: `yes` and
//! `on` are booleans, `010` is eight.

/// The value of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing: an empty text, `~` or `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// A float, a timestamp or an integer beyond 64 bits, which no key of a rule file takes.
    Other,
}

/// How the text of a scalar becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Style {
    /// By its form, as YAML 1.1 defines it.
    Plain,
    /// As text: it was quoted, a block or tagged, or is a text field of a message.
    Text,
    /// As a float or a timestamp: it was tagged.
    Other,
}

impl Style {
    /// Returns the value of a text of this style.
    pub fn value(self, text: &str) -> Value<'_> {
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

/// Interprets a text that starts like a number: an integer, another number, or text after all.
fn number(text: &str) -> Value<'_> {
    let digits = text.replace('_', "");
    let magnitude = digits.strip_prefix(['+', '-']).unwrap_or(&digits);
    let (radix, magnitude) = match magnitude.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &magnitude[2..]),
        [b'0', b'b' | b'B', ..] => (2, &magnitude[2..]),
        [b'0', b'o' | b'O', ..] => (8, &magnitude[2..]),
        [b'0', _, ..] => (8, &magnitude[1..]),
        _ => (10, magnitude),
    };
    if !magnitude.is_empty() && magnitude.chars().all(|c| c.is_digit(radix)) {
        let sign = if digits.starts_with('-') { "-" } else { "" };
        let signed = format!("{sign}{magnitude}");
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
    use crate::syntax::yaml::tests::value;

    #[test]
    fn scalars_follow_yaml_1_1() {
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
}
