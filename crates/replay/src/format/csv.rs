//! Reads a log of `weir replay` in comma-separated values (RFC 4180). The first line names the fields.

use csv_core::{ReadRecordResult, Reader};

use crate::rows::{Fields, Rows, shown};

const MAX_COLUMNS: usize = 4096;

/// What a line of a log turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Row,
    /// The first line, with the names of the fields.
    Ignored,
}

#[derive(Debug)]
pub(crate) struct Csv {
    reader: Reader,
    /// The index of each column's field, if it is used; none before the header.
    header: Option<Vec<Option<usize>>>,
    unquoted: Vec<u8>,
    /// The end of each value in `unquoted`.
    ends: Vec<usize>,
}

impl Csv {
    pub fn new() -> Csv {
        // `Reader::default` reads nothing.
        Csv { reader: Reader::new(), header: None, unquoted: Vec::new(), ends: Vec::new() }
    }

    /// Reads a line. An empty value is a missing field.
    pub fn read(&mut self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<Line, String> {
        let columns = self.split(line)?;
        let values = (0..columns).map(|column| {
            let start = column.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.unquoted[start..self.ends[column]]
        });
        let Some(header) = &self.header else {
            let names: Vec<&[u8]> = values.map(|name| name.trim_ascii()).collect();
            self.header = Some(names.iter().map(|name| fields.index(name)).collect());
            let is_missing = |field: &&String| !names.contains(&field.as_bytes());
            return match fields.names.iter().find(is_missing) {
                Some(field) => {
                    let names = String::from_utf8_lossy(&names.join(&b", "[..])).into_owned();
                    Err(format!(
                        "the first line has no field `{field}`, its fields are {}",
                        shown(&names)
                    ))
                }
                None => Ok(Line::Ignored),
            };
        };
        if columns != header.len() {
            return Err(format!("{columns} values, but the first line names {}", header.len()));
        }
        for (field, value) in std::iter::zip(header, values) {
            if let Some(field) = field.filter(|_| !value.is_empty()) {
                rows.set(field, value);
            }
        }
        Ok(Line::Row)
    }

    /// Splits a line, and returns how many values it has.
    fn split(&mut self, line: &[u8]) -> Result<usize, String> {
        self.unquoted.resize(line.len() + 1, 0);
        self.ends.resize(MAX_COLUMNS, 0);
        self.reader.reset();
        let (mut input, mut written, mut columns) = (line, 0, 0);
        // At the end of the line the input is empty, which ends the record.
        loop {
            let (result, read, out, ends) = self.reader.read_record(
                input,
                &mut self.unquoted[written..],
                &mut self.ends[columns..],
            );
            (input, written, columns) = (&input[read..], written + out, columns + ends);
            match result {
                ReadRecordResult::InputEmpty => {}
                _ if !input.trim_ascii().is_empty() => {
                    return Err("more than one record: check its quotes".to_owned());
                }
                ReadRecordResult::Record | ReadRecordResult::End => return Ok(columns),
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    return Err(format!("more than {MAX_COLUMNS} values"));
                }
            }
        }
    }
}

/// Returns whether a quoted value is open after a part of a line, given whether one is before it. Only a quote at the
/// start of a value opens it.
pub(super) fn is_open_after(is_open: bool, part: &[u8]) -> bool {
    if memchr::memchr(b'"', part).is_none() {
        return is_open;
    }
    let (mut is_open, mut is_start) = (is_open, !is_open);
    let mut bytes = part.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if is_open => is_open = bytes.next_if_eq(&&b'"').is_some(),
            b'"' if is_start => is_open = true,
            _ => {}
        }
        is_start = !is_open && *byte == b',';
    }
    is_open
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads lines, and returns the values of the fields `b` and `a` of each row.
    fn rows(lines: &[&str]) -> Vec<Result<Vec<Option<String>>, String>> {
        let mut fields = Fields::default();
        fields.add("b");
        fields.add("a");
        let (mut csv, mut rows) = (Csv::new(), Rows::new(2, 0));
        let mut found = Vec::new();
        for line in lines {
            rows.start();
            match csv.read(line.as_bytes(), &fields, &mut rows) {
                Ok(Line::Row) => {
                    found.push(Ok((0..2).map(|i| rows.get(i).map(str::to_owned)).collect()));
                }
                Ok(Line::Ignored) => {}
                Err(error) => found.push(Err(error)),
            }
        }
        found
    }

    #[test]
    fn the_first_line_names_the_fields() {
        let text = |text: &str| Some(text.to_owned());
        let found = rows(&["a, c ,b", "1,2,3", "\"x,\"\"y\",,", "1,2"]);
        assert_eq!(found[0], Ok(vec![text("3"), text("1")]));
        assert_eq!(found[1], Ok(vec![None, text("x,\"y")]));
        assert_eq!(found[2], Err("2 values, but the first line names 3".to_owned()));
    }

    #[test]
    fn fields_that_the_first_line_does_not_have_are_an_error() {
        let error = rows(&["{\"a\": 1"])[0].clone().unwrap_err();
        assert_eq!(error, "the first line has no field `b`, its fields are {\"a\": 1");
    }

    #[test]
    fn only_a_quote_at_the_start_of_a_value_opens_it() {
        for (part, is_open) in [
            ("a,\"b", true),
            ("\"", true),
            ("a\",b", false),
            ("\"a\"\"", true),
            ("\"a\"b\",c", false),
            ("\"a\",\"", true),
            ("\"a\",\"\"", false),
        ] {
            assert_eq!(is_open_after(false, part.as_bytes()), is_open, "{part}");
        }
        assert!(!is_open_after(true, b"b\",c") && is_open_after(true, b",b"));
    }

    #[test]
    fn too_many_values_are_an_error() {
        assert!(rows(&["a,b", &",".repeat(MAX_COLUMNS)])[0].is_err());
    }

    proptest! {
        #[test]
        fn quoted_values_are_read(a in "\\PC{0,8}", b in "[\",a \n]{0,8}") {
            let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            let line = format!("{},{}", quoted(&a), quoted(&b));
            let expected = [b, a].map(|text| Some(text).filter(|text| !text.is_empty()));
            prop_assert_eq!(&rows(&["a,b", &line])[0], &Ok(expected.to_vec()));
        }
    }
}
