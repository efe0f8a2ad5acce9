//! Prints the output of commands: lines, tables and JSON, with control characters escaped; and returns the exit code.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::Value;

use weir_common::descriptor::descriptor_text;
use weir_common::entry::OwnedEntry;
use weir_common::escape::escape;
use weir_common::truncate::truncated_chars;

/// The exit code of invalid arguments, which is clap's.
pub const USAGE: u8 = 2;

/// Characters of the widest column that is padded and not cut, but for the last one.
const MAX_COLUMN_WIDTH: usize = 60;

/// Characters of the last column that are printed: a longer text would fill the terminal.
const MAX_LAST_WIDTH: usize = 300;

/// Prints JSON, without any control character.
pub fn json(json: &Value, out: &mut dyn Write) -> io::Result<()> {
    format!("{json:#}").lines().try_for_each(|text| line(out, text))
}

/// Prints a text as one line, without any control character.
pub fn line(out: &mut dyn Write, text: &str) -> io::Result<()> {
    writeln!(out, "{}", escape(text))
}

/// Prints a line on standard error, which may be closed.
pub fn on_stderr(text: &str) {
    let _ = line(&mut io::stderr().lock(), text);
}

/// Returns the entries of a descriptor as arguments have them.
pub fn entries(entries: &[OwnedEntry]) -> String {
    let entries = entries.iter().map(|OwnedEntry { key, value }| (&**key, &**value));
    descriptor_text(&entries.collect::<Vec<_>>())
}

/// Returns a number with its noun: `1 hit`, `2 hits`.
pub fn counted(count: impl TryInto<u64> + Copy + Display, what: &str) -> String {
    let is_one = count.try_into().is_ok_and(|count| count == 1);
    format!("{count} {what}{}", if is_one { "" } else { "s" })
}

/// Returns the first names of a list, and the number of the others.
pub fn shortened(names: &[String], max: usize) -> String {
    let more = names.len().saturating_sub(max);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[derive(Clone, Copy, Debug)]
pub enum Column {
    Left(&'static str),
    Right(&'static str),
}

/// Prints a table, indented by some spaces. Cells are escaped, and long ones cut. A column whose cells are
/// all empty is omitted.
pub fn table(
    out: &mut dyn Write,
    indent: usize,
    columns: &[Column],
    rows: &[Vec<String>],
) -> io::Result<()> {
    let heading = |column: &Column| match column {
        Column::Left(heading) | Column::Right(heading) => *heading,
    };
    let last = columns.len().saturating_sub(1);
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let max = |i| if i == last { MAX_LAST_WIDTH } else { MAX_COLUMN_WIDTH };
            row.iter().enumerate().map(|(i, text)| truncated_chars(&escape(text), max(i))).collect()
        })
        .collect();
    let cell = |row: &[String], i: usize| row.get(i).cloned().unwrap_or_default();
    let width = |i: usize| cells.iter().map(|row| cell(row, i).chars().count()).max().unwrap_or(0);
    let shown: Vec<(usize, &Column, usize)> = columns
        .iter()
        .enumerate()
        .filter(|(i, _)| width(*i) > 0)
        .map(|(i, column)| (i, column, width(i).max(heading(column).len())))
        .collect();
    let headings: Vec<String> = columns.iter().map(|column| heading(column).to_owned()).collect();
    for row in std::iter::once(&headings).chain(&cells) {
        let mut text = " ".repeat(indent);
        for (at, (i, column, width)) in shown.iter().enumerate() {
            let (cell, separator) = (cell(row, *i), if at == 0 { "" } else { "  " });
            text += separator;
            text += &match column {
                Column::Left(_) => format!("{cell:width$}"),
                Column::Right(_) => format!("{cell:>width$}"),
            };
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// Returns `code`, unless the output could not be written. A reader may close the pipe, as `head` does.
pub fn finish(printed: io::Result<()>, code: ExitCode) -> ExitCode {
    match printed.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            on_stderr(&format!("error: cannot write: {error}"));
            ExitCode::FAILURE
        }
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_cut_and_escape_their_cells() {
        let columns = [Column::Right("N"), Column::Left("BY"), Column::Left("KEY")];
        let row = |n: &str, key: &str| vec![n.to_owned(), String::new(), key.to_owned()];
        let mut out = Vec::new();
        table(&mut out, 2, &columns, &[row("100", "a\u{1b}[31m\n"), row("2", &"x".repeat(400))])
            .unwrap();
        let long = "x".repeat(MAX_LAST_WIDTH - 1);
        let wanted = format!("    N  KEY\n  100  a\\u001b[31m\\n\n    2  {long}…\n");
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    #[test]
    fn entries_are_printed_as_arguments() {
        assert_eq!(entries(&OwnedEntry::copied([("a,b", "1"), ("c", "")])), r"a\,b=1,c=");
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let finished = |kind: io::ErrorKind| finish(Err(kind.into()), ExitCode::from(3));
        assert_eq!(finished(io::ErrorKind::BrokenPipe), ExitCode::from(3));
        assert_eq!(finished(io::ErrorKind::StorageFull), ExitCode::FAILURE);
        assert_eq!(finish(Ok(()), ExitCode::from(3)), ExitCode::from(3));
    }
}
