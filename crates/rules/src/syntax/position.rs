//! Positions in rule files and messages.

use std::num::NonZeroU32;

/// The position of a node, in eight bytes: a tree has one for each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Position {
    /// A place in a text; line and column are counted from 1.
    Line { line: NonZeroU32, column: u32 },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_small() {
        assert_eq!(size_of::<Position>(), 8);
    }
}
