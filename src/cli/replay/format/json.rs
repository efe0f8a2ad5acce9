//! One JSON object a line.
//!
//! A scan finds the used fields without reading the others in full. What it does not know (an escape in a
//! used value, a path into nested objects, anything unusual) is left to a JSON parser.

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::memchr2;
use serde_json::value::RawValue;

use crate::cli::replay::rows::{Fields, Rows};

/// Bytes that are searched one by one.
const SHORT_BYTES: usize = 12;

/// Reads a line. A field is the value of its key, or of a path such as `request.path`. Null is a
/// missing field.
///
/// # Errors
///
/// It is no JSON object, or a field is an object or a list.
#[inline]
pub(super) fn read(line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<(), String> {
    match scan(line, fields, rows) {
        Some(()) => Ok(()),
        None => {
            rows.start();
            parse(line, fields, rows)
        }
    }
}

/// Scans an object. None if only a parser can read it. Values that are not used are not validated.
fn scan(line: &[u8], fields: &Fields, rows: &mut Rows) -> Option<()> {
    let mut rest = skip_space(skip_space(line).strip_prefix(b"{")?);
    loop {
        let (key, after) = cut_string(rest.strip_prefix(b"\"")?)?;
        rest = skip_space(skip_space(after).strip_prefix(b":")?);
        let field = fields.index(key);
        match *rest.first()? {
            b'"' => {
                let text = &rest[1..];
                if let Some(field) = field {
                    let (value, after) = cut_string(text)?;
                    rows.set(field, value);
                    rest = after;
                } else {
                    rest = skip_string(text)?;
                }
            }
            b'{' | b'[' if field.is_none() => rest = skip_nested(rest)?,
            b't' | b'f' | b'n' | b'-' | b'0'..=b'9' => {
                let end = rest.iter().position(|byte| b",} \t\r\n".contains(byte))?;
                let (value, after) = rest.split_at(end);
                let is_word = matches!(value, b"true" | b"false" | b"null");
                if !is_word && !is_number(value) {
                    return None;
                }
                match field {
                    Some(field) if value == b"null" => rows.unset(field),
                    Some(field) => rows.set(field, value),
                    None => {}
                }
                rest = after;
            }
            _ => return None,
        }
        rest = skip_space(rest);
        match rest.split_first()? {
            (b',', after) => rest = skip_space(after),
            (b'}', after) if skip_space(after).is_empty() => break,
            _ => return None,
        }
    }
    // A missing field may be a path.
    let is_missing = |field: &usize| rows.get(*field).is_none();
    (!fields.have_paths() || !(0..fields.names().len()).any(|field| is_missing(&field)))
        .then_some(())
}

/// Whether a text is a JSON number.
fn is_number(text: &[u8]) -> bool {
    match text {
        [b'1'..=b'9', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => true,
        // The library reads a minus sign, decimals and exponents.
        _ => serde_json::from_slice::<&RawValue>(text).is_ok(),
    }
}

#[inline]
fn skip_space(text: &[u8]) -> &[u8] {
    match text.first() {
        Some(b' ' | b'\t' | b'\r' | b'\n') => text.trim_ascii_start(),
        _ => text,
    }
}

/// Finds the first quote or backslash. Most strings are short, where a search by vectors costs more.
#[inline]
fn find_quote(text: &[u8]) -> Option<usize> {
    let short = &text[..text.len().min(SHORT_BYTES)];
    match short.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        Some(at) => Some(at),
        None => Some(short.len() + memchr2(b'"', b'\\', &text[short.len()..])?),
    }
}

/// Splits a string without escapes from what follows its closing quote.
#[inline]
fn cut_string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = find_quote(text)?;
    (text[end] == b'"').then(|| (&text[..end], &text[end + 1..]))
}

/// Returns what follows the closing quote of a string.
#[inline]
fn skip_string(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        let at = find_quote(text)?;
        if text[at] == b'"' {
            return Some(&text[at + 1..]);
        }
        text = text.get(at + 2..)?;
    }
}

/// Returns what follows an object or a list.
fn skip_nested(mut text: &[u8]) -> Option<&[u8]> {
    let mut depth = 0usize;
    loop {
        let at = text.iter().position(|byte| b"\"{}[]".contains(byte))?;
        let after = &text[at + 1..];
        text = match text[at] {
            b'"' => skip_string(after)?,
            b'{' | b'[' => {
                depth += 1;
                after
            }
            _ => {
                depth -= 1;
                if depth == 0 {
                    return Some(after);
                }
                after
            }
        };
    }
}

fn parse(line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<(), String> {
    let object: Object<'_> = serde_json::from_slice(line).map_err(|error| reason(line, &error))?;
    for (index, name) in fields.names().iter().enumerate() {
        match find(&object, name).as_deref() {
            None | Some("null") => {}
            Some(value) => match value.as_bytes().first() {
                Some(b'"') => {
                    let text: String = serde_json::from_str(value)
                        .map_err(|error| format!("invalid JSON: {error}"))?;
                    rows.set(index, text.as_bytes());
                }
                Some(b'{' | b'[') => {
                    return Err(format!(
                        "field `{name}` is an object or a list: write the path of one value in it"
                    ));
                }
                _ => rows.set(index, value.as_bytes()),
            },
        }
    }
    Ok(())
}

/// An object whose values are not read yet.
type Object<'l> = HashMap<Cow<'l, str>, &'l RawValue>;

/// Finds the JSON of a field, else follows the path that its dots make.
fn find(object: &Object<'_>, name: &str) -> Option<String> {
    if let Some(value) = object.get(name) {
        return Some(value.get().to_owned());
    }
    let (first, rest) = name.split_once('.')?;
    find(&serde_json::from_str(object.get(first)?.get()).ok()?, rest)
}

fn reason(line: &[u8], error: &serde_json::Error) -> String {
    match line.trim_ascii_start().first() {
        Some(b'{') => format!("invalid JSON: {error}"),
        _ => "not a JSON object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn fields(names: &[&str]) -> Fields {
        let mut fields = Fields::default();
        for name in names {
            fields.add(name);
        }
        fields
    }

    type Found = Option<Vec<Option<String>>>;

    fn by(
        reader: impl Fn(&[u8], &Fields, &mut Rows) -> bool,
        line: &str,
        fields: &Fields,
    ) -> Found {
        let mut rows = Rows::new(fields.names().len(), 0);
        rows.start();
        let is_read = reader(line.as_bytes(), fields, &mut rows);
        let values = (0..fields.names().len()).map(|i| rows.get(i).map(str::to_owned));
        is_read.then(|| values.collect())
    }

    fn scanned(line: &str, fields: &Fields) -> Found {
        by(|line, fields, rows| scan(line, fields, rows).is_some(), line, fields)
    }

    fn parsed(line: &str, fields: &Fields) -> Found {
        by(|line, fields, rows| parse(line, fields, rows).is_ok(), line, fields)
    }

    #[test]
    fn fields_are_values_of_keys_and_paths() {
        let fields = fields(&["a", "b.c", "d"]);
        let text = |text: &str| Some(text.to_owned());
        let line = r#"{"d": null, "b": {"c": true}, "a": "x\"y"}"#;
        assert_eq!(parsed(line, &fields), Some(vec![text("x\"y"), text("true"), None]));
        let line = r#"{"b.c": 1, "b": {"c": 2}, "a": 1.5e3}"#;
        assert_eq!(parsed(line, &fields), Some(vec![text("1.5e3"), text("1"), None]));
    }

    #[test]
    fn common_lines_are_scanned() {
        let fields = fields(&["a", "b"]);
        for line in [
            r#"{"a":"x","b":"y"}"#,
            r#" { "x" : [1, {"a": "}"}, "]"], "a" : "é"  , "b" : -1.50 } "#,
            r#"{"q": "\"a\\", "b": true}"#,
            r#"{"a": 1, "a": 2, "b": "x", "b": null}"#,
        ] {
            assert!(scanned(line, &fields).is_some(), "{line}");
            assert_eq!(scanned(line, &fields), parsed(line, &fields), "{line}");
        }
    }

    #[test]
    fn lines_that_are_no_objects_are_errors() {
        let fields = fields(&["a"]);
        for line in
            ["", "[]", "{", r#"{"a": 1"#, r#"{"a": 1} x"#, r#"{"a": {}}"#, r#"{"a": 01}"#, "{]}"]
        {
            let mut rows = Rows::new(1, 0);
            rows.start();
            assert!(read(line.as_bytes(), &fields, &mut rows).is_err(), "{line}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i32>().prop_map(|number| json!(number)),
            "[a-z\"\\\\{}\\[\\],:é\u{1}]{0,6}".prop_map(Value::String),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::hash_map("[ab.\"]{1,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Whatever the scan reads, the parser reads too, and the same.
        #[test]
        fn the_scan_agrees_with_the_parser(
            object in prop::collection::hash_map("[ab.]{1,3}", value(), 0..6),
            is_pretty in any::<bool>(),
        ) {
            let fields = fields(&["a", "b", "a.b"]);
            let object: Value = Value::Object(object.into_iter().collect());
            let line = if is_pretty { format!("{object:#}") } else { object.to_string() };
            if let Some(found) = scanned(&line, &fields) {
                prop_assert_eq!(Some(found), parsed(&line, &fields), "{}", line);
            }
        }

        #[test]
        fn no_line_panics(line in "[{}\\[\\]\",:a1.\\\\ -]{0,40}") {
            let fields = fields(&["a"]);
            let _ = (scanned(&line, &fields), parsed(&line, &fields));
        }
    }
}
