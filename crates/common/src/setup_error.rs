//! Errors of what settings name.

use thiserror::Error;

/// Why something that a setting names cannot be used. The message names the setting and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetupError {
    /// The setting, or the content of the file that it names, is invalid: somebody has to change it.
    #[error("{0}")]
    Invalid(String),
    /// The thing may be usable later: a port is in use, a directory is locked, a file is not there yet.
    #[error("{0}")]
    Unavailable(String),
}

impl SetupError {
    /// Returns the error of something that the system does not allow now.
    pub fn unavailable(error: anyhow::Error) -> SetupError {
        SetupError::Unavailable(format!("{error:#}"))
    }

    /// Replaces the message.
    #[must_use]
    pub fn map(self, message: impl FnOnce(String) -> String) -> SetupError {
        match self {
            SetupError::Invalid(text) => SetupError::Invalid(message(text)),
            SetupError::Unavailable(text) => SetupError::Unavailable(message(text)),
        }
    }
}

impl From<SetupError> for String {
    fn from(error: SetupError) -> String {
        error.to_string()
    }
}
