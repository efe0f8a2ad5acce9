//! Maps positions in the value of a scalar to those in the file that has the scalar.

use std::iter;

use super::position::Position;

/// Where the parts of a scalar's value are in its file.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceMap {
    /// Sorted by `value`; each holds up to the next one.
    segments: Vec<Segment>,
}

/// The last column of a line in which the start of a scalar is looked at, and the longest header of a block.
const MAX_COLUMN: u32 = 1_000;

/// The blank lines at the start of a literal block that are looked at.
const MAX_BLANK_LINES: usize = 100;

/// Lines and columns, counted from 1.
type LineColumn = (u32, u32);

#[derive(Clone, Copy, Debug)]
struct Segment {
    value: LineColumn,
    file: LineColumn,
}

impl SourceMap {
    /// Maps the value of the scalar that starts at a position of a text with these lines. Literal
    /// blocks and double-quoted scalars are mapped exactly, as manifests have them; others to their
    /// start.
    pub fn of_scalar(lines: &[&str], line: u32, column: u32, value: &str) -> SourceMap {
        let start = SourceMap { segments: vec![Segment { value: (1, 1), file: (line, column) }] };
        // A line may be the whole file, and have a million scalars.
        if column > MAX_COLUMN {
            return start;
        }
        let above = (line.saturating_sub(1) as usize).min(lines.len());
        let (before, rest) = lines.split_at(above);
        let near = &before[before.len().saturating_sub(MAX_BLANK_LINES)..];
        let header = near.iter().rposition(|line| !is_blank(line));
        let header = header.map(|header| before.len() - near.len() + header);
        if let Some(header) = header.filter(|&header| opens_literal(before[header])) {
            return SourceMap::of_literal(&lines[header + 1..], header as u32 + 1, value);
        }
        let (first, below) =
            rest.split_first().map_or(("", rest), |(first, below)| (*first, below));
        let mut rest = first.chars().skip(column.saturating_sub(1) as usize);
        if rest.next() == Some('"') {
            let below = below.iter().flat_map(|line| iter::once('\n').chain(line.chars()));
            return SourceMap::of_quoted(rest.chain(below), (line, column + 1));
        }
        start
    }

    /// A literal block after this line, with the lines below: a line of it is a line of the value, less
    /// the indentation.
    fn of_literal(below: &[&str], line: u32, value: &str) -> SourceMap {
        let indentation = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let indent = iter::zip(value.split('\n'), below)
            .find(|(line, _)| !line.trim().is_empty())
            .map_or(0, |(value, file)| indentation(file).saturating_sub(indentation(value)));
        let count = value.split('\n').count() as u32;
        let segment = |i| Segment { value: (i + 1, 1), file: (line + 1 + i, indent as u32 + 1) };
        SourceMap { segments: (0..count).map(segment).collect() }
    }

    /// A double-quoted scalar; `text` starts after its quote, at `file`.
    fn of_quoted(text: impl Iterator<Item = char>, mut file: LineColumn) -> SourceMap {
        let mut value = (1, 1);
        let mut segments = vec![Segment { value, file }];
        let mut chars = text.peekable();
        // Blanks before a line break do not belong to the value.
        let mut blanks = 0;
        while let Some(next) = chars.next().filter(|&next| next != '"') {
            let is_break = next == '\n';
            file.1 += 1;
            if next == '\\' {
                let escaped = chars.next().unwrap_or_default();
                file.1 += 1;
                blanks = 0;
                let digits = match escaped {
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    _ => 0,
                };
                file.1 += chars.by_ref().take(digits).count() as u32;
                match escaped {
                    '\n' => {
                        file = (file.0 + 1, 1);
                        while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {
                            file.1 += 1;
                        }
                    }
                    'n' => value = (value.0 + 1, 1),
                    _ => value.1 += 1,
                }
            } else if is_break {
                let mut breaks = 0;
                file = (file.0 + 1, 1);
                while let Some(blank) = chars.next_if(|c| c.is_ascii_whitespace()) {
                    file.1 += 1;
                    if blank == '\n' {
                        breaks += 1;
                        file = (file.0 + 1, 1);
                    }
                }
                value = match breaks {
                    0 => (value.0, value.1 - blanks + 1),
                    _ => (value.0 + breaks, 1),
                };
                blanks = 0;
            } else {
                blanks = if matches!(next, ' ' | '\t') { blanks + 1 } else { 0 };
                value.1 += 1;
                continue;
            }
            segments.push(Segment { value, file });
        }
        SourceMap { segments }
    }

    /// The position in the file of one in the value.
    pub fn position(&self, in_value: Position) -> Position {
        let Position::Line { line, column } = in_value else { return in_value };
        let (line, column) = self.locate(line.get(), column);
        Position::in_text(line, column)
    }

    /// The line and column in the file of those in the value.
    pub fn locate(&self, line: u32, column: u32) -> LineColumn {
        let after = self.segments.partition_point(|segment| segment.value <= (line, column));
        let Some(segment) = after.checked_sub(1).and_then(|at| self.segments.get(at)) else {
            return (line, column);
        };
        match segment.value.0 == line {
            true => (segment.file.0, segment.file.1 + (column - segment.value.1)),
            false => segment.file,
        }
    }
}

/// Whether a line is short and blank.
fn is_blank(line: &str) -> bool {
    line.len() <= MAX_COLUMN as usize && line.trim().is_empty()
}

/// Whether a line ends with the `|` of a literal block, which the parser does not report.
fn opens_literal(line: &str) -> bool {
    if line.len() > MAX_COLUMN as usize {
        return false;
    }
    let line = line.split(" #").next().unwrap_or_default();
    let last = line.split_whitespace().next_back().unwrap_or_default();
    let is_indicator = |c: char| matches!(c, '+' | '-' | '1'..='9');
    last.strip_prefix('|').is_some_and(|rest| rest.chars().all(is_indicator))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    /// The places in the file of each word of the value of the key `k`.
    fn places(text: &str) -> Vec<(String, LineColumn)> {
        let root = yaml::parse(text).unwrap().unwrap();
        let crate::tree::Content::Map(entries) = root.content() else { panic!("{text}") };
        let (_, node) = &entries[0];
        let (line, column) = (node.position.line().unwrap(), node.position.column().unwrap());
        let value = node.text().unwrap();
        let lines: Vec<&str> = crate::problem::lines(text).collect();
        let map = SourceMap::of_scalar(&lines, line, column, value);
        let mut found = Vec::new();
        for (number, line) in (1..).zip(value.split('\n')) {
            for word in line.split(' ').filter(|word| !word.is_empty()) {
                let before = &line[..word.as_ptr() as usize - line.as_ptr() as usize];
                let column = before.chars().count() as u32 + 1;
                found.push((word.to_owned(), map.locate(number, column)));
            }
        }
        found
    }

    /// Compares each place with what the file has there.
    fn check(text: &str, words: usize) {
        let found = places(text);
        assert_eq!(found.len(), words, "{found:?}");
        for (word, (line, column)) in found {
            let line = text.lines().nth(line as usize - 1).unwrap_or_else(|| panic!("{word}"));
            let rest: String = line.chars().skip(column as usize - 1).collect();
            let rest = rest.replace("\\\"", "\"").replace("\\u00e9", "é");
            assert!(rest.starts_with(&word), "{word}: {rest}");
        }
    }

    #[test]
    fn words_are_where_the_file_has_them() {
        check("k: |\n  one two\n    three\n\n  four\n", 4);
        check("k: |-\n\n      one\n      two\n", 2);
        check("k: |2\n    one\n   two\n", 2);
        check(r#"{"k": "one two\n  three\n\"four\" five\u00e9 six\n"}"#, 6);
        check("k: \"one\\n\\\n  \\  two\\n\\\n  three\"\n", 3);
        check("k: \"one two\n  three\n\n  four  \n  five\"\n", 5);
    }

    #[test]
    fn far_from_the_start_of_a_long_line_scalars_are_mapped_to_their_start() {
        let before = "x".repeat(MAX_COLUMN as usize - 10);
        let near = format!("{{\"k\": \"{}one two\"}}", "");
        assert_eq!(places(&near)[1].1, (1, 12));
        let far = format!("{{k: \"one two\", {before}: a}}");
        assert_eq!(places(&far)[1].1, (1, 10));
        let far = SourceMap::of_scalar(&[&" ".repeat(2_000)], 1, MAX_COLUMN + 1, "one two");
        assert_eq!(far.segments.len(), 1);
        assert_eq!(far.locate(1, 5), (1, MAX_COLUMN + 5));
        // A header, or what looks like one, is short and near.
        assert!(!opens_literal(&format!("k: {before}{before} |")));
        assert!(opens_literal("k: |"));
    }

    #[test]
    fn other_scalars_are_mapped_to_their_start() {
        assert_eq!(
            places("k: 'one\n\n  two'\n"),
            [("one".to_owned(), (1, 4)), ("two".to_owned(), (1, 4))]
        );
    }
}
