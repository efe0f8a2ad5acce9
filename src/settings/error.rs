//! Errors in settings: where each is, what it is, and what to write instead.

use std::fmt;

/// An error in the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The file, variable or flag at fault.
    pub origin: String,
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl SettingError {
    pub(super) fn new(
        origin: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> SettingError {
        SettingError { origin: origin.into(), message: message.into(), help: help.into() }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.origin, self.message, self.help)
    }
}
