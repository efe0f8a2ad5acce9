//! Why a control is refused.

use serde::Serialize;

/// Why a control is refused, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{error}; {help}")]
pub struct ControlError {
    pub error: String,
    pub help: String,
    #[serde(skip)]
    pub kind: ErrorKind,
}

/// The kind of an error, from which an API derives its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The control is invalid.
    Invalid,
    /// The control matches everything, and was not forced.
    NeedsForce,
    /// There is no room for another control.
    TooMany,
    /// There is no control of that id.
    NotFound,
}

impl ControlError {
    pub(super) fn new(
        kind: ErrorKind,
        error: impl Into<String>,
        help: impl Into<String>,
    ) -> ControlError {
        ControlError { error: error.into(), help: help.into(), kind }
    }

    pub(super) fn invalid(error: impl Into<String>, help: impl Into<String>) -> ControlError {
        ControlError::new(ErrorKind::Invalid, error, help)
    }
}
