//! Reads a log of `weir replay` with one JSON object a line.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::rows::{Fields, Rows};

/// Reads lines. A field is the value of its key, or of a path such as `request.path`. Null is a missing field.
#[derive(Debug, Default)]
pub(crate) struct Json {
    found: Vec<Found>,
}

/// Where the value of a field was found in a line.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The number of objects around it: the key `request.path` is preferred to `path` in the object `request`.
    depth: usize,
    is_object_or_list: bool,
}

const NOT_FOUND: Found = Found { depth: usize::MAX, is_object_or_list: false };

impl Json {
    /// Fails if the line is no JSON object, or a field is an object or a list.
    #[inline]
    pub fn read(&mut self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<(), String> {
        // The check alone is several times faster than the replacement.
        let text = match std::str::from_utf8(line) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(line),
        };
        self.found.clear();
        self.found.resize(fields.names.len(), NOT_FOUND);
        let object = Object { fields, rows, found: &mut self.found, prefix: "", depth: 0 };
        let mut json = serde_json::Deserializer::from_str(&text);
        let read = json.deserialize_map(object).and_then(|()| json.end());
        read.map_err(|error| reason(line, &error))?;
        let nested = self.found.iter().position(|found| found.is_object_or_list);
        nested.map_or(Ok(()), |field| {
            let name = &fields.names[field];
            Err(format!("field `{name}` is an object or a list: write the path of one value in it"))
        })
    }
}

/// Reads the fields of an object, and of those in it.
struct Object<'a> {
    fields: &'a Fields,
    rows: &'a mut Rows,
    found: &'a mut [Found],
    /// The path of the object, with a dot at its end.
    prefix: &'a str,
    depth: usize,
}

/// What the value of a key is used for.
#[derive(Clone, Copy)]
struct Use<'f> {
    field: Option<usize>,
    /// The path of the key, with a dot at its end, if fields start with it.
    prefix: Option<&'f str>,
}

/// A key, borrowed from the line unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'l>(#[serde(borrow)] Cow<'l, str>);

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            let found = self.use_of(&key);
            if let Use { field: None, prefix: None } = found {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<&RawValue>()?.get();
            if let Some(field) = found.field {
                self.set(field, value).map_err(A::Error::custom)?;
            }
            if let Some(prefix) = found.prefix {
                self.descend(prefix, value).map_err(A::Error::custom)?;
            }
        }
        Ok(())
    }
}

impl<'a> Object<'a> {
    #[inline]
    fn use_of(&self, key: &str) -> Use<'a> {
        let mut found = Use { field: None, prefix: None };
        let first = key.as_bytes().first();
        for (index, name) in self.fields.names.iter().enumerate() {
            // Most keys differ in their first byte.
            if first.is_some() && name.as_bytes().get(self.prefix.len()) != first {
                continue;
            }
            let Some(rest) = name.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix(key))
            else {
                continue;
            };
            match rest.as_bytes().first() {
                None => found.field = Some(index),
                Some(b'.') if !key.contains('.') => {
                    found.prefix = name.get(..self.prefix.len() + key.len() + 1);
                }
                _ => {}
            }
        }
        found
    }

    /// Sets a field to a value, unless a key with more dots had one.
    #[inline]
    fn set(&mut self, field: usize, value: &str) -> serde_json::Result<()> {
        let found = &mut self.found[field];
        if found.depth < self.depth {
            return Ok(());
        }
        *found = Found { depth: self.depth, is_object_or_list: value.starts_with(['{', '[']) };
        let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        match quoted {
            None if value == "null" => self.rows.unset(field),
            None => self.rows.set_text(field, value),
            Some(text) if memchr::memchr(b'\\', text.as_bytes()).is_none() => {
                self.rows.set_text(field, text);
            }
            Some(_) => self.rows.set_text(field, &serde_json::from_str::<String>(value)?),
        }
        Ok(())
    }

    /// Reads the fields in the value of a key. Those that it does not have are missing, all if it is no object.
    fn descend(&mut self, prefix: &str, value: &str) -> serde_json::Result<()> {
        for (field, name) in self.fields.names.iter().enumerate() {
            // A key may be repeated: the last one counts.
            if name.starts_with(prefix) && self.found[field].depth > self.depth {
                self.found[field] = NOT_FOUND;
                self.rows.unset(field);
            }
        }
        if !value.starts_with('{') {
            return Ok(());
        }
        let (fields, depth) = (self.fields, self.depth + 1);
        let object = Object { fields, rows: self.rows, found: self.found, prefix, depth };
        serde_json::Deserializer::from_str(value).deserialize_map(object)
    }
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

    type Values = Vec<Option<String>>;

    /// Reads lines one after the other, and returns the values of the last.
    fn read_after(lines: &[&[u8]], fields: &Fields) -> Result<Values, String> {
        let mut rows = Rows::new(fields.names.len(), 0);
        let (mut json, mut read) = (Json::default(), Ok(()));
        for line in lines {
            rows.start();
            read = json.read(line, fields, &mut rows);
        }
        let values = (0..fields.names.len()).map(|i| rows.get(i).map(str::to_owned));
        read.map(|()| values.collect())
    }

    fn read(line: &str, fields: &Fields) -> Result<Values, String> {
        read_after(&[line.as_bytes()], fields)
    }

    fn some(values: &[&str]) -> Result<Values, String> {
        let value = |value: &&str| (!value.is_empty()).then(|| (*value).to_owned());
        Ok(values.iter().map(value).collect())
    }

    #[test]
    fn fields_are_values_of_keys_and_paths() {
        let fields = fields(&["a", "b.c", "d"]);
        for (line, expected) in [
            (r#"{"d": null, "b": {"c": true}, "a": "x\"y"}"#, ["x\"y", "true", ""]),
            // Numbers are as they are written.
            (
                r#" { "b" : { "c" : -1.50 } , "a":1.5e3,"d": 18446744073709551616 } "#,
                ["1.5e3", "-1.50", "18446744073709551616"],
            ),
            (r#"{"\u0061": "é\u00e9\ud83d\ude00"}"#, ["éé😀", "", ""]),
            // A key with dots is preferred to a path, wherever it is, and even if it is null.
            (r#"{"b.c": 1, "b": {"c": 2}}"#, ["", "1", ""]),
            (r#"{"b": {"c": {}}, "b.c": 1}"#, ["", "1", ""]),
            (r#"{"b": {"c": 2}, "b.c": null}"#, ["", "", ""]),
            // The last of repeated keys counts.
            (r#"{"a": 1, "a": 2, "b": {"c": 1}, "b": {"d": 2}, "d": 1, "d": null}"#, ["2", "", ""]),
            (r#"{"b": {"c": 1}, "b": [1]}"#, ["", "", ""]),
            ("{}", ["", "", ""]),
        ] {
            assert_eq!(read(line, &fields), some(&expected), "{line}");
        }
        // An unused value may be bytes that are not UTF-8, as paths of requests are.
        assert_eq!(read_after(&[b"{\"a\": 1, \"x\": \"\xff\"}"], &fields), some(&["1", "", ""]));
    }

    #[test]
    fn a_path_may_be_deep_and_an_object_may_have_a_field_too() {
        let fields = fields(&["a.b.c", "a.x", "a.b.d.e", "a"]);
        let line = r#"{"a": {"b": {"c": 1, "d": {"e": "2"}}, "x": 3}, "a": {"b.c": 4, "b": {"c": 5}, "x": 6}, "a": 7}"#;
        assert_eq!(read(line, &fields), some(&["", "", "", "7"]));
        let line = r#"{"a": {"b.c": 4, "b": {"c": 5, "d": {"e": 6}}, "x": null}, "q": {"a": 1}}"#;
        let error = "field `a` is an object or a list: write the path of one value in it";
        assert_eq!(read(line, &fields), Err(error.to_owned()));
        let three = super::tests::fields(&["a.b.c", "a.x", "a.b.d.e"]);
        assert_eq!(read(line, &three), some(&["4", "", "6"]));
    }

    #[test]
    fn invalid_lines_are_errors_wherever_they_are_invalid() {
        let fields = fields(&["a", "b.c"]);
        for (line, expected) in [
            ("", "not a JSON object"),
            ("[]", "not a JSON object"),
            ("{]}", "invalid JSON: key must be a string at line 1 column 2"),
            ("{", "invalid JSON: EOF while parsing an object at line 1 column 1"),
            (r#"{"a": 1"#, "invalid JSON: EOF while parsing an object at line 1 column 7"),
            (r#"{"a": 1} x"#, "invalid JSON: trailing characters at line 1 column 10"),
            (r#"{"a": 01}"#, "invalid JSON: invalid number at line 1 column 8"),
            (r#"{"a": 1, "x": 01}"#, "invalid JSON: invalid number at line 1 column 16"),
            (r#"{"a": 1, "x": tru}"#, "invalid JSON: expected ident at line 1 column 18"),
            (r#"{"a": 1, "x": "\q"}"#, "invalid JSON: invalid escape at line 1 column 17"),
            (r#"{"a": 1, "x": [}]}"#, "invalid JSON: expected value at line 1 column 16"),
            (r#"{"a": 1, "x": {"y" 1}}"#, "invalid JSON: expected `:` at line 1 column 20"),
            (r#"{"a": 1, "b": {"c" 1}}"#, "invalid JSON: expected `:` at line 1 column 20"),
            (
                "{\"a\": 1, \"x\": \"\n\"}",
                "invalid JSON: control character (\\u0000-\\u001F) found while parsing a string at line 1 column 15",
            ),
        ] {
            assert_eq!(read(line, &fields), Err(expected.to_owned()), "{line}");
        }
        for line in [r#"{"a": "\ud800"}"#, r#"{"b": {"c": "\ud800x"}}"#] {
            assert!(read(line, &fields).is_err_and(|error| error.contains("hex escape")), "{line}");
        }
        let error = "field `a` is an object or a list: write the path of one value in it";
        for line in [r#"{"a": {}}"#, r#"{"a": [1]}"#] {
            assert_eq!(read(line, &fields), Err(error.to_owned()), "{line}");
        }
        // The next line starts over.
        let lines: [&[u8]; 2] = [b"{\"a\": {}}", b"{\"b\": {\"c\": 1}}"];
        assert_eq!(read_after(&lines, &fields), some(&["", "1"]));
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

    /// A key of the object, else a path from it.
    fn find<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
        let by_path = |(first, rest): (&str, &str)| find(object.get(first)?, rest);
        object.get(name).or_else(|| by_path(name.split_once('.')?))
    }

    proptest! {
        #[test]
        fn fields_are_those_of_the_whole_object(
            objects in prop::collection::vec(
                prop::collection::hash_map("[ab.]{1,3}", value(), 0..6), 1..3),
            is_pretty in any::<bool>(),
        ) {
            let fields = fields(&["a", "b", "a.b", "b.a.b", "a..b"]);
            let objects: Vec<Value> =
                objects.into_iter().map(|object| Value::Object(object.into_iter().collect())).collect();
            let text = |object: &Value| if is_pretty { format!("{object:#}") } else { object.to_string() };
            let lines: Vec<String> = objects.iter().map(text).collect();
            let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
            let found: Vec<_> =
                fields.names.iter().map(|name| find(&objects[objects.len() - 1], name)).collect();
            let text = |value: &Option<&Value>| match value {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(text.clone()),
                Some(value) => Some(value.to_string()),
            };
            let nested = |value: &Option<&Value>| value.is_some_and(|value| value.is_object() || value.is_array());
            match read_after(&lines, &fields) {
                Ok(values) => prop_assert_eq!(values, found.iter().map(text).collect::<Vec<_>>()),
                Err(error) => {
                    prop_assert!(error.contains("is an object or a list"), "{}", error);
                    prop_assert!(found.iter().any(nested));
                }
            }
            prop_assert_eq!(read_after(&lines, &fields).is_err(), found.iter().any(nested));
        }

        #[test]
        fn no_line_panics(line in "[{}\\[\\]\",:a1.\\\\ -]{0,40}") {
            let _ = read(&line, &fields(&["a", "a.b"]));
        }
    }
}
