//! Comma-separated values, as RFC 4180 has them. The first line names the fields.

use csv_core::{ReadRecordResult, Reader};

use super::Line;
use crate::cli::replay::rows::{Fields, Rows};

/// Columns of a line, at most.
const MAX_COLUMNS: usize = 4096;

#[derive(Debug, Default)]
pub(in crate::cli::replay) struct Csv {
    /// Of each column the index of its field, if it is used; none before the header.
    header: Option<Vec<Option<usize>>>,
    /// The values of a line, without quotes.
    unquoted: Vec<u8>,
    /// Where each value ends.
    ends: Vec<usize>,
}

impl Csv {
    /// Reads a line. An empty value is a missing field.
    pub fn read(&mut self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<Line, String> {
        let columns = self.split(line)?;
        let values = (0..columns).map(|column| {
            let start = column.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.unquoted[start..self.ends[column]]
        });
        let Some(header) = &self.header else {
            let names = values.map(|name| name.trim_ascii());
            // Spreadsheets start files with a byte order mark.
            let names = names.map(|name| name.strip_prefix(b"\xef\xbb\xbf").unwrap_or(name));
            self.header = Some(names.map(|name| fields.index(name)).collect());
            return Ok(Line::Ignored);
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
        let mut reader = Reader::new();
        let (mut input, mut written, mut columns) = (line, 0, 0);
        // The end of the input, told as an empty one, ends the record.
        loop {
            let (result, read, out, ends) =
                reader.read_record(input, &mut self.unquoted[written..], &mut self.ends[columns..]);
            (input, written, columns) = (&input[read..], written + out, columns + ends);
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::Record | ReadRecordResult::End => return Ok(columns),
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    return Err(format!("more than {MAX_COLUMNS} values"));
                }
            }
        }
    }
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
        let (mut csv, mut rows) = (Csv::default(), Rows::new(2, 0));
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
        let found = rows(&["\u{feff}a, c ,b", "1,2,3", "\"x,\"\"y\",,", "1,2"]);
        assert_eq!(found[0], Ok(vec![text("3"), text("1")]));
        assert_eq!(found[1], Ok(vec![None, text("x,\"y")]));
        assert_eq!(found[2], Err("2 values, but the first line names 3".to_owned()));
    }

    #[test]
    fn too_many_values_are_an_error() {
        assert!(rows(&["a", &",".repeat(MAX_COLUMNS)])[0].is_err());
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
