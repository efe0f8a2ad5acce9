//! Positions in rule files and xDS messages, to show where an error is or where a rule comes from.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The position of a node, in eight bytes: a tree has one for each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Position {
    /// A place in a text; line and column are counted from 1.
    Line {
        /// The line.
        line: NonZeroU32,
        /// The column, in characters.
        column: u32,
    },
    /// A field of a message: how many fields precede it in the tree. Its path is found by walking the tree.
    Field(u32),
}

impl Position {
    /// Returns a position in a text; line and column start at 1.
    pub fn in_text(line: u32, column: u32) -> Position {
        Position::Line { line: NonZeroU32::new(line).unwrap_or(NonZeroU32::MIN), column }
    }

    /// The line; none in a message.
    pub fn line(self) -> Option<u32> {
        match self {
            Position::Line { line, .. } => Some(line.get()),
            Position::Field(_) => None,
        }
    }

    /// The column, in characters; none in a message.
    pub fn column(self) -> Option<u32> {
        match self {
            Position::Line { column, .. } => Some(column),
            Position::Field(_) => None,
        }
    }
}

/// The start of a text.
impl Default for Position {
    fn default() -> Position {
        Position::in_text(1, 1)
    }
}

/// Where a rule was read: the file or resource, and the position in it; in JSON `{"file":"a.yaml","line":3,"column":5}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Place", into = "Place")]
pub struct Origin {
    /// The name of the file or the resource.
    pub file: Arc<str>,
    /// The position in it.
    pub position: Position,
}

/// The members of an origin in JSON. A message has no lines.
#[derive(Serialize, Deserialize)]
struct Place {
    file: String,
    line: Option<u32>,
    column: Option<u32>,
}

impl From<Origin> for Place {
    fn from(Origin { file, position }: Origin) -> Place {
        Place { file: (*file).into(), line: position.line(), column: position.column() }
    }
}

impl From<Place> for Origin {
    fn from(Place { file, line, column }: Place) -> Origin {
        let position = match (line, column) {
            (Some(line), Some(column)) => Position::in_text(line, column),
            _ => Position::Field(0),
        };
        Origin { file: file.into(), position }
    }
}

/// What comes after the name of a file: `:line:column`; nothing in a message.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line { line, column } => write!(f, ":{line}:{column}"),
            Position::Field(_) => Ok(()),
        }
    }
}

/// `file:line:column`, or the name of a resource.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.file, self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_small() {
        assert_eq!(size_of::<Position>(), 8);
    }
}
