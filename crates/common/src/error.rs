//! The error of a setting, or of the file, port or server that it names; and texts of errors with their causes.

use std::error::Error as StdError;

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

/// Formats an error with its causes, without repeating what an error includes of its cause.
pub fn with_causes(error: &dyn StdError) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message += &format!(": {text}");
        }
        cause = error.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Error)]
    #[error("{0}")]
    struct Outer(&'static str, #[source] std::fmt::Error);

    #[test]
    fn a_cause_is_named_once() {
        let inner = std::fmt::Error.to_string();
        assert_eq!(with_causes(&Outer("no text", std::fmt::Error)), format!("no text: {inner}"));
        let text: &'static str = Box::leak(format!("no text ({inner})").into_boxed_str());
        assert_eq!(with_causes(&Outer(text, std::fmt::Error)), text);
    }
}
