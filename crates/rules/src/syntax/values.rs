//! Reads the keys and values of the tests of `weir test`, and reports every problem with its position.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::position::Position;
use super::problem::{Problem, Problems, Severity};
use super::tree::{Content, Node, Value};
use weir_common::duration::read_duration;
use weir_common::suggest::nearest;
use weir_limit::{Micros, SECOND};

/// A kind of map in a test file, such as a request, and its keys.
#[derive(Debug)]
pub struct Section {
    /// What it is, in messages, such as `a request`.
    pub what: &'static str,
    /// The keys that it may have.
    pub keys: &'static [&'static str],
}

/// Reports problems of one file.
pub struct Reader<'r> {
    /// The name of the file.
    pub file: &'r str,
    /// Where problems are listed.
    pub problems: &'r mut Problems,
    /// All kinds of maps, for suggestions.
    pub sections: &'static [&'static Section],
}

/// A key of a section, and its value.
pub type Field<'n> = (&'static str, &'n Node<'n>);

impl Reader<'_> {
    /// Reports an error. Its texts are not built if it would not be listed.
    pub fn error(&mut self, position: Position, text: &str, message: impl Display, help: &str) {
        if !self.problems.has_room(Severity::Error) {
            return self.problems.omit(Severity::Error);
        }
        let problem = Problem::of_file(self.file, message.to_string(), help);
        self.problems.push(problem.at(position).about(text));
    }

    /// Reports a value that does not fit its key.
    pub fn invalid(&mut self, node: &Node<'_>, field: &str, help: &str) {
        let message = format_args!("`{field}` is {}", describe(node));
        self.error(node.position, &node.shown(), message, help);
    }

    /// Returns the keys of a map that belong in the section. Others are errors.
    pub fn fields<'n>(&mut self, node: &'n Node<'n>, section: &Section) -> Vec<Field<'n>> {
        let mut fields = Vec::new();
        self.add_fields(node, section, false, &mut fields);
        fields
    }

    /// Adds the keys of a map, and then those of maps that `<<` merges: the map's own keys win.
    fn add_fields<'n>(
        &mut self,
        node: &'n Node<'n>,
        section: &Section,
        is_merged: bool,
        fields: &mut Vec<Field<'n>>,
    ) {
        let Content::Map(entries) = node.content() else {
            let help = format!("write a map, with the keys {}", section.keys.join(", "));
            let message = format_args!("{} is {}", section.what, describe(node));
            return self.error(node.position, &node.shown(), message, &help);
        };
        for (key, value) in entries.iter().filter(|(key, _)| !key.is_merge_key()) {
            let text = key.text().unwrap_or_default();
            match section.keys.iter().find(|name| **name == text) {
                None => self.unknown_key(key, section),
                Some(name) if !fields.iter().any(|(other, _)| other == name) => {
                    fields.push((name, value));
                }
                Some(_) if is_merged => {}
                Some(name) => {
                    let message = format_args!("`{name}` is repeated");
                    self.error(key.position, name, message, "remove one of them");
                }
            }
        }
        for (_, value) in entries.iter().filter(|(key, _)| key.is_merge_key()) {
            match value.content() {
                Content::List(maps) => {
                    maps.iter().for_each(|map| self.add_fields(map, section, true, fields));
                }
                _ => self.add_fields(value, section, true, fields),
            }
        }
    }

    fn unknown_key(&mut self, key: &Node<'_>, section: &Section) {
        // To find a suggestion takes longer than everything else.
        if !self.problems.has_room(Severity::Error) {
            return self.problems.omit(Severity::Error);
        }
        let text = key.shown();
        let owner = self.sections.iter().find(|other| other.keys.contains(&text.as_str()));
        let help = match (nearest(&text, section.keys.iter().copied()), owner) {
            (_, Some(owner)) => format!("`{text}` belongs in {}", owner.what),
            (Some(near), None) => format!("did you mean `{near}`?"),
            _ => format!("the keys of {} are: {}", section.what, section.keys.join(", ")),
        };
        let message = format_args!("unknown key '{text}' in {}", section.what);
        self.error(key.position, &text, message, &help);
    }

    /// Reads text; an unquoted number or boolean is used as written.
    pub fn text<'n>(&mut self, node: &'n Node<'n>, field: &str) -> Option<&'n str> {
        let text = node.text().filter(|_| !node.is_null());
        if text.is_none() {
            self.invalid(node, field, "write text");
        }
        text
    }

    /// Reads text that is not empty.
    pub fn name<'n>(&mut self, node: &'n Node<'n>, field: &str) -> Option<&'n str> {
        let text = self.text(node, field)?;
        if text.is_empty() {
            self.invalid(node, field, "write text that is not empty");
        }
        Some(text)
    }

    /// Reads one of two words or more.
    pub fn choice<T: Copy>(
        &mut self,
        node: &Node<'_>,
        field: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = node.text().unwrap_or_default();
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.invalid(node, field, &format!("write one of {}", words.join(", ")));
        }
        found.map(|(_, value)| *value)
    }

    /// Reads a boolean.
    pub fn bool(&mut self, node: &Node<'_>, field: &str) -> Option<bool> {
        let Some(Value::Bool(value)) = node.value() else {
            self.invalid(node, field, "write true or false, without quotes");
            return None;
        };
        Some(value)
    }

    /// Reads a whole number within a range.
    pub fn number(
        &mut self,
        node: &Node<'_>,
        field: &str,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let number = match node.value() {
            Some(Value::Int(number)) => u32::try_from(number).ok().filter(|n| range.contains(n)),
            _ => None,
        };
        if number.is_none() {
            let (min, max) = range.into_inner();
            let help = format!("write a whole number from {min} to {max}, without quotes");
            self.invalid(node, field, &help);
        }
        number
    }

    /// Reads a duration in whole milliseconds.
    pub fn duration(&mut self, node: &Node<'_>, field: &str) -> Option<Micros> {
        let duration = node.text().and_then(read_duration);
        let micros = duration.and_then(|duration| {
            // A fraction of a second is not exact in binary.
            let rounded = duration.as_nanos().saturating_add(500) / 1_000;
            Micros::try_from(rounded).ok()
        });
        let help = match micros {
            Some(micros) if micros.is_multiple_of(SECOND / 1_000) => return Some(micros),
            Some(_) => "write whole milliseconds",
            None => "write a duration, such as 500ms or 1m30s",
        };
        self.invalid(node, field, help);
        None
    }

    /// Reads a list that is not empty.
    pub fn list<'n>(&mut self, node: &'n Node<'n>, field: &str, items: &str) -> &'n [Node<'n>] {
        match node.content() {
            Content::List(list) if !list.is_empty() => list,
            _ => {
                self.invalid(node, field, &format!("write a list of {items}"));
                &[]
            }
        }
    }

    /// Reports a key that a map lacks.
    pub fn missing(&mut self, node: &Node<'_>, section: &Section, key: &str, help: &str) {
        // A map that is none is reported already.
        if let Content::Map(_) = node.content() {
            let message = format_args!("{} has no `{key}`", section.what);
            self.error(node.position, "", message, help);
        }
    }
}

fn describe(node: &Node<'_>) -> String {
    match node.content() {
        _ if node.is_null() => "empty".to_owned(),
        Content::Scalar(_) => format!("'{}'", node.shown()),
        Content::List(list) if list.is_empty() => "an empty list".to_owned(),
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "a map".to_owned(),
    }
}
