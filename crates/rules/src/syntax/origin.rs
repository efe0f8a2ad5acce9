//! Where a rule was read.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::position::Position;

/// The file or resource, and the position in it; in JSON `{"file":"a.yaml","line":3,"column":5}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Place", into = "Place")]
pub struct Origin {
    pub file: Arc<str>,
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

/// `file:line:column`, or the name of a resource.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match self.position {
            Position::Line { line, column } => write!(f, ":{line}:{column}"),
            Position::Field(_) => Ok(()),
        }
    }
}
