//! The errors of a set of rules or an overlay that was rejected.

use std::time::SystemTime;

use weir_rules::{Position, Problem};

/// The newest set, or overlay, while it is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// What the rejection means, and the first error.
    pub text: String,
    /// The place of the first error.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub column: Option<u32>,
    pub errors: usize,
    /// Since when none have been valid.
    pub since: SystemTime,
}

impl Rejected {
    /// Returns whether the first error is the same.
    pub(super) fn is_like(&self, other: &Rejected) -> bool {
        let place = |set: &Rejected| (set.file.clone(), set.line, set.column);
        self.text == other.text && place(self) == place(other)
    }

    /// Notes the errors of a set that is rejected `now`. `message` says what the rejection means.
    pub(super) fn new(
        message: &str,
        first: Option<&Problem>,
        errors: usize,
        now: SystemTime,
    ) -> Rejected {
        let position = first.and_then(|first| first.position);
        Rejected {
            text: match first {
                Some(first) => format!("{message}: {}", first.message),
                None => message.to_owned(),
            },
            file: first.map(|first| first.file.clone()),
            line: position.and_then(Position::line),
            column: position.and_then(Position::column),
            errors,
            since: now,
        }
    }

    /// Keeps the time of the first rejection: that of `before`, if there is one.
    pub(super) fn after(self, before: Option<&Rejected>) -> Rejected {
        Rejected { since: before.map_or(self.since, |before| before.since), ..self }
    }
}
