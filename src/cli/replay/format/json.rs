//! One JSON object a line.
//!
//! Three readers, each faster than the next: most lines have the same keys in the same order as the line before, so
//! that only the ends of their values are searched. Else a scan finds the keys. What it does not know (an escape in a
//! used value, a path into nested objects, anything unusual) is left to a JSON parser.

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::memchr2;
use serde_json::value::RawValue;

use crate::cli::replay::rows::{Fields, Rows};

/// Reads lines. A field is the value of its key, or of a path such as `request.path`. Null is a missing field.
#[derive(Debug, Default)]
pub(in crate::cli::replay) struct Json {
    layout: Layout,
}

/// What is between the values of a line.
#[derive(Debug, Default)]
struct Layout {
    /// Keys and punctuation, one after the other.
    text: Vec<u8>,
    /// Of each value the end of the text before it, and its field if it is used.
    values: Vec<(usize, Option<usize>)>,
}

impl Json {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// It is no JSON object, or a field is an object or a list.
    #[inline]
    pub fn read(&mut self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<(), String> {
        if self.layout.follow(line, rows).is_some() {
            return Ok(());
        }
        rows.start();
        if self.layout.scan(line, fields, rows).is_some() {
            return Ok(());
        }
        self.layout.clear();
        rows.start();
        parse(line, fields, rows)
    }
}

impl Layout {
    fn clear(&mut self) {
        self.text.clear();
        self.values.clear();
    }

    /// Adds what is before a value.
    fn add(&mut self, before: &[u8], field: Option<usize>) {
        self.text.extend_from_slice(before);
        self.values.push((self.text.len(), field));
    }

    /// Reads the values of a line with this layout. None if it has another one.
    #[inline]
    fn follow(&self, line: &[u8], rows: &mut Rows) -> Option<()> {
        let (mut at, mut start) = (0, 0);
        for &(end, field) in &self.values {
            let before = &self.text[start..end];
            if !line.get(at..)?.starts_with(before) {
                return None;
            }
            at = read_value(line, at + before.len(), field, rows)?;
            start = end;
        }
        (start > 0 && line.get(at..)? == &self.text[start..]).then_some(())
    }

    /// Scans an object, whose layout becomes this one. None if only a parser can read it. Values that are not
    /// used are not validated.
    fn scan(&mut self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Option<()> {
        self.clear();
        let (mut start, mut at) = (0, skip_space(line, 0));
        if *line.get(at)? != b'{' {
            return None;
        }
        at = skip_space(line, at + 1);
        loop {
            let key = line.get(at..)?.strip_prefix(b"\"")?;
            let end = memchr2(b'"', b'\\', key)?;
            if key[end] != b'"' {
                return None;
            }
            at = skip_space(line, at + end + 2);
            if *line.get(at)? != b':' {
                return None;
            }
            at = skip_space(line, at + 1);
            let field = fields.index(&key[..end]);
            self.add(&line[start..at], field);
            start = read_value(line, at, field, rows)?;
            at = skip_space(line, start);
            match *line.get(at)? {
                b',' => at = skip_space(line, at + 1),
                b'}' if skip_space(line, at + 1) == line.len() => break,
                _ => return None,
            }
        }
        self.text.extend_from_slice(&line[start..]);
        // A missing field may be a path.
        let is_missing = |field: usize| rows.get(field).is_none();
        (!fields.have_paths() || !(0..fields.names().len()).any(is_missing)).then_some(())
    }
}

/// Reads the value at `at`, and returns where it ends. None if only a parser can read it.
#[inline]
fn read_value(line: &[u8], at: usize, field: Option<usize>, rows: &mut Rows) -> Option<usize> {
    let value = line.get(at..)?;
    match (*value.first()?, field) {
        (b'"', Some(field)) => {
            let text = &value[1..];
            let end = find_end(text)?;
            if text[end] != b'"' {
                return None;
            }
            rows.set(field, &text[..end]);
            Some(at + end + 2)
        }
        (b'"', None) => skip_string(line, at),
        (b'{' | b'[', None) => skip_nested(line, at),
        (b't' | b'f' | b'n' | b'-' | b'0'..=b'9', _) => {
            let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
            let end = value.iter().position(is_end)?;
            let value = &value[..end];
            let is_word = matches!(value, b"true" | b"false" | b"null");
            if !is_word && !is_number(value) {
                return None;
            }
            match field {
                Some(field) if value == b"null" => rows.unset(field),
                Some(field) => rows.set(field, value),
                None => {}
            }
            Some(at + end)
        }
        _ => None,
    }
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

/// Returns where the string ends whose quote is at `at`.
#[inline]
fn skip_string(line: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        let end = at + find_end(line.get(at..)?)?;
        if line[end] == b'"' {
            return Some(end + 1);
        }
        at = end + 2;
    }
}

/// Bytes that are searched eight at a time. Most values are shorter, and the call of `memchr2` takes longer than that.
const SHORT: usize = 32;

/// Returns the first quote or backslash of a text.
#[inline]
fn find_end(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    for (i, word) in words.iter().take(SHORT / 8).enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = has_byte(word, b'"') | has_byte(word, b'\\');
        if found != 0 {
            return Some(i * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let searched = (words.len() * 8).min(SHORT);
    memchr2(b'"', b'\\', &text[searched..]).map(|at| searched + at)
}

/// Sets the highest bit of the first byte of `word` that is `byte`. Bytes after it may be set too.
#[inline]
fn has_byte(word: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let zero_where_equal = word ^ (ONES * u64::from(byte));
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & (ONES << 7)
}

fn parse(line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<(), String> {
    // To the scan, text that is not used may be anything.
    let text = String::from_utf8_lossy(line);
    let object: Object<'_> = serde_json::from_str(&text).map_err(|error| reason(line, &error))?;
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
        by(|line, fields, rows| Layout::default().scan(line, fields, rows).is_some(), line, fields)
    }

    /// By the layout of a line, which is scanned first.
    fn followed(first: &str, line: &str, fields: &Fields) -> Found {
        let (mut layout, mut rows) = (Layout::default(), Rows::new(fields.names().len(), 0));
        rows.start();
        layout.scan(first.as_bytes(), fields, &mut rows)?;
        by(|line, _, rows| layout.follow(line, rows).is_some(), line, fields)
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
            assert_eq!(followed(line, line, &fields), parsed(line, &fields), "{line}");
        }
    }

    #[test]
    fn lines_with_the_same_keys_are_read_by_their_layout() {
        let fields = fields(&["a", "b"]);
        let first = r#"{"a":"x", "q": {"b": [1]}, "b":1}"#;
        for (line, is_read) in [
            (r#"{"a":"longer", "q": "}", "b":-1.5}"#, true),
            (r#"{"a":null, "q": "\"", "b":"1"}"#, true),
            (r#"{"a":"x", "q": 1, "b":1, "a": 2}"#, false),
            (r#"{"a":"x", "q": 1}"#, false),
            (r#"{"a":"x", "q": 1, "b":1"#, false),
            (r#"{"a":"x","q": 1, "b":1}"#, false),
            (r#"{"b":"x", "q": 1, "a":1}"#, false),
            (r#"{"a":"\n", "q": 1, "b":1}"#, false),
            ("", false),
        ] {
            let found = followed(first, line, &fields);
            assert_eq!(found.is_some(), is_read, "{line}");
            assert!(!is_read || found == parsed(line, &fields), "{line}");
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
            let mut json = Json::default();
            assert!(json.read(line.as_bytes(), &fields, &mut rows).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn the_end_of_a_string_is_found(text in prop::collection::vec(
            prop_oneof![Just(b'"'), Just(b'\\'), Just(b'!'), Just(b']'), any::<u8>(), Just(b'a')], 0..80,
        ), plain in 0..80usize) {
            let text = [vec![b'a'; plain], text].concat();
            prop_assert_eq!(find_end(&text), memchr2(b'"', b'\\', &text));
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

        /// And what is read by the layout of another line too.
        #[test]
        fn the_layout_agrees_with_the_parser(
            keys in prop::collection::vec("[ab.]{1,3}", 1..6),
            values in prop::collection::vec((value(), value()), 6),
            other in prop::collection::hash_map("[ab.]{1,3}", value(), 0..6),
        ) {
            let fields = fields(&["a", "b", "a.b"]);
            let line = |value: &dyn Fn(usize) -> String| {
                let pairs = keys.iter().enumerate();
                let pairs: Vec<_> = pairs.map(|(i, key)| format!("{key:?}: {}", value(i))).collect();
                format!("{{{}}}", pairs.join(", "))
            };
            let first = line(&|i| values[i].0.to_string());
            let other = Value::Object(other.into_iter().collect()).to_string();
            for second in [line(&|i| values[i].1.to_string()), other] {
                if let Some(found) = followed(&first, &second, &fields) {
                    prop_assert_eq!(Some(found), parsed(&second, &fields), "{} {}", first, second);
                }
            }
        }

        #[test]
        fn no_line_panics(line in "[{}\\[\\]\",:a1.\\\\ -]{0,40}") {
            let fields = fields(&["a"]);
            let _ = (scanned(&line, &fields), parsed(&line, &fields));
        }
    }
}
