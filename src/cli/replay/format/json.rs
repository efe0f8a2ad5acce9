//! One JSON object a line.
//!
//! A scan finds the used fields without reading the others in full. What it does not know (an escape in a
//! used value, a path into nested objects, anything unusual) is left to a JSON parser.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use memchr::memchr2;
use serde_json::value::RawValue;

use crate::cli::replay::rows::{Fields, Rows};

/// Words that are searched before vectors.
const WORDS: usize = 4;

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
    let mut at = skip_space(line, 0);
    if *line.get(at)? != b'{' {
        return None;
    }
    at = skip_space(line, at + 1);
    loop {
        let key = string(line, at)?;
        at = skip_space(line, key.end + 1);
        if *line.get(at)? != b':' {
            return None;
        }
        at = skip_space(line, at + 1);
        let field = fields.index(&line[key]);
        match (*line.get(at)?, field) {
            (b'"', Some(field)) => {
                let value = string(line, at)?;
                at = value.end + 1;
                rows.set(field, &line[value]);
            }
            (b'"', None) => at = skip_string(line, at)?,
            (b'{' | b'[', None) => at = skip_nested(line, at)?,
            (b't' | b'f' | b'n' | b'-' | b'0'..=b'9', _) => {
                let end = line[at..].iter().position(|byte| b",} \t\r\n".contains(byte))? + at;
                let value = &line[at..end];
                let is_word = matches!(value, b"true" | b"false" | b"null");
                if !is_word && !is_number(value) {
                    return None;
                }
                match field {
                    Some(field) if value == b"null" => rows.unset(field),
                    Some(field) => rows.set(field, value),
                    None => {}
                }
                at = end;
            }
            _ => return None,
        }
        at = skip_space(line, at);
        match *line.get(at)? {
            b',' => at = skip_space(line, at + 1),
            b'}' if skip_space(line, at + 1) == line.len() => break,
            _ => return None,
        }
    }
    // A missing field may be a path.
    let is_missing = |field: usize| rows.get(field).is_none();
    (!fields.have_paths() || !(0..fields.names().len()).any(is_missing)).then_some(())
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
fn skip_space(line: &[u8], at: usize) -> usize {
    let mut at = at;
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = line.get(at) {
        at += 1;
    }
    at
}

/// Returns where an object or a list ends.
fn skip_nested(line: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        at += line.get(at..)?.iter().position(|byte| b"\"{}[]".contains(byte))?;
        match line[at] {
            b'"' => {
                at = skip_string(line, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            _ => depth -= 1,
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Returns the string whose quote is at `at`, without its quotes. None if it has an escape.
#[inline]
fn string(line: &[u8], at: usize) -> Option<Range<usize>> {
    let end = find_mark(line, at + 1)?;
    (line[at] == b'"' && line[end] == b'"').then_some(at + 1..end)
}

/// Returns where the string ends whose quote is at `at`.
#[inline]
fn skip_string(line: &[u8], at: usize) -> Option<usize> {
    let mut end = find_mark(line, at + 1)?;
    while line[end] == b'\\' {
        end = find_mark(line, end + 2)?;
    }
    Some(end + 1)
}

/// Finds the first quote or backslash from `at` on. Most strings are so short that a search for vectors would
/// cost more than one of eight bytes at once.
#[inline]
fn find_mark(line: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..WORDS {
        let Some(word) = line.get(at..)?.first_chunk() else { break };
        let marks = bytes_equal(*word, b'"') | bytes_equal(*word, b'\\');
        if marks != 0 {
            return Some(at + marks.trailing_zeros() as usize / 8);
        }
        at += word.len();
    }
    Some(at + memchr2(b'"', b'\\', line.get(at..)?)?)
}

/// Returns the highest bit of each byte that equals `byte`; the first byte is the lowest.
#[inline]
fn bytes_equal(word: [u8; 8], byte: u8) -> u64 {
    const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let differing = u64::from_le_bytes(word) ^ u64::from_ne_bytes([byte; 8]);
    // Adding to the low bits sets the highest unless they are all 0, without carrying to the next byte.
    !((differing & LOW_BITS) + LOW_BITS | differing | LOW_BITS)
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
            r#"{"q": "\\\"\n\u0022", "x": {"c": "\"}", "d": ["\\"]}, "a": 1}"#,
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
        #[test]
        fn equal_bytes_are_found(word in any::<[u8; 8]>(), other in any::<[bool; 8]>(), byte in any::<u8>()) {
            let word: [u8; 8] = std::array::from_fn(|i| if other[i] { byte } else { word[i] });
            let expected = (0..8).filter(|i| word[*i] == byte).fold(0, |bits, i| bits | 0x80 << (8 * i));
            prop_assert_eq!(bytes_equal(word, byte), expected);
        }

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
