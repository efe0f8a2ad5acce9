//! Errors in settings: where each is, what it is, and what to write instead.

use std::fmt;

use super::table;
use crate::suggest::nearest;

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

    /// An error for a name that no setting has.
    pub(super) fn unknown(name: &str, origin: &str) -> SettingError {
        let names = || table::SETTINGS.iter().map(|setting| setting.name);
        let below = |group: &str| group.strip_prefix(name).is_some_and(|r| r.starts_with('.'));
        let group: Vec<_> = names().filter(|setting| below(setting)).collect();
        let help = match nearest(name, names()) {
            _ if !group.is_empty() => format!("it is a group: {}", group.join(", ")),
            Some(near) => format!("did you mean {near}?"),
            None => "remove it; `weir settings` lists all settings".to_owned(),
        };
        SettingError::new(origin, format!("there is no setting {name:?}"), help)
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.origin, self.message, self.help)
    }
}
