//! Where the positions of several files are.

use std::sync::Arc;

use weir_rules::source::RuleFile;
use weir_rules::tree::{Content, Node};
use weir_rules::{Origin, Position};

/// Files whose lines are counted through, so that positions of all are distinct.
#[derive(Debug, Default)]
pub(in crate::cli::check::envoy) struct Sources {
    /// The lines before each file, and its name.
    files: Vec<(u32, Arc<str>)>,
}

impl Sources {
    /// One file, with its own lines.
    pub fn one(name: &str) -> Sources {
        Sources { files: vec![(0, name.into())] }
    }

    /// Returns the sources of several files, one after the other.
    pub fn of(files: &[RuleFile]) -> Sources {
        let mut before = 0_u32;
        let files = files.iter().map(|RuleFile { name, text }| {
            let start = before;
            // A lone carriage return ends a line too.
            let lines = memchr::memchr2_iter(b'\n', b'\r', text.as_bytes()).count() + 1;
            before = before.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
            (start, name.as_str().into())
        });
        Sources { files: files.collect() }
    }

    /// The file and the place of a position.
    pub fn origin(&self, position: Position) -> Origin {
        let line = position.line().unwrap_or_default();
        let at = self.files.partition_point(|(before, _)| *before < line).saturating_sub(1);
        let Some((before, file)) = self.files.get(at) else {
            return Origin { file: "".into(), position };
        };
        Origin { file: file.clone(), position: moved(position, |line| line - before) }
    }

    /// The position of a place in a file among those of all.
    pub fn position(&self, file: usize, position: Position) -> Position {
        later(position, self.before(file))
    }

    /// A copy of a node of a file, with its positions among those of all.
    pub fn placed<'a>(&self, file: usize, node: &Node<'a>) -> Node<'a> {
        placed(node, self.before(file))
    }

    fn before(&self, file: usize) -> u32 {
        self.files.get(file).map_or(0, |(before, _)| *before)
    }
}

fn placed<'a>(node: &Node<'a>, before: u32) -> Node<'a> {
    let position = later(node.position, before);
    match node.content() {
        Content::Scalar(_) => node.moved(position),
        Content::List(items) => {
            Node::list(position, items.iter().map(|item| placed(item, before)).collect())
        }
        Content::Map(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(key, value)| (placed(key, before), placed(value, before)));
            Node::map(position, entries.collect())
        }
    }
}

fn later(position: Position, lines: u32) -> Position {
    moved(position, |line| line.saturating_add(lines))
}

fn moved(position: Position, line: impl Fn(u32) -> u32) -> Position {
    match (position.line(), position.column()) {
        (Some(at), Some(column)) => Position::in_text(line(at), column),
        _ => position,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_rules::yaml;

    #[test]
    fn positions_name_their_file() {
        let file = |name: &str, text: &str| RuleFile { name: name.into(), text: text.into() };
        let files = [file("a", "x: 1\r\ny: 2"), file("b", ""), file("c", "z: 1\n\nw: 2\n")];
        let sources = Sources::of(&files);
        for (number, lines) in [(0, [1, 2]), (2, [1, 3])] {
            let root = yaml::parse(&files[number].text).unwrap().unwrap();
            let placed = sources.placed(number, &root);
            let Content::Map(entries) = placed.content() else { panic!() };
            for ((key, _), line) in entries.iter().zip(lines) {
                let origin = sources.origin(key.position);
                assert_eq!(&*origin.file, files[number].name);
                assert_eq!(origin.position, Position::in_text(line, 1));
            }
        }
    }
}
