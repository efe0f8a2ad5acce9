//! A single setting: its declaration, the reader of all values, a value with its origin, and an error in it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use config::Value;

use super::format::{Format, FormatKind, written};
use super::secret;
use weir_common::truncate::truncated;

/// The origin of a value that nothing sets.
pub const DEFAULT_ORIGIN: &str = "default";

const MAX_SHOWN_BYTES: usize = 200;

/// A declared setting, whatever its type.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name in a settings file, such as `a.b`, which is `WEIR__A__B` in the environment.
    pub name: &'static str,
    pub kind: FormatKind,
    /// The default as it would be written; empty for none.
    pub default: &'static str,
    pub doc: &'static str,
    pub is_secret: bool,
    accepts: fn(&Value) -> bool,
}

impl Setting {
    pub(super) fn new<F: Format>(
        name: String,
        default: &'static str,
        doc: &'static str,
    ) -> Setting {
        Setting {
            // It is declared once.
            name: name.leak(),
            kind: F::KIND,
            default,
            doc: doc.trim_ascii(),
            is_secret: F::IS_SECRET,
            accepts: |value| F::read(value).is_some(),
        }
    }

    pub fn accepts(&self, value: &Value) -> bool {
        (self.accepts)(value)
    }

    /// Returns `text` as it may be shown: secrets, and logins in URLs, are masked.
    pub fn masked(&self, text: &str) -> String {
        if self.is_secret { secret::masked(text) } else { secret::shown(self.name, text) }
    }
}

/// The value of a setting, and where it comes from. `clone()` clones the value alone.
pub struct Resolved<T> {
    pub value: T,
    pub setting: &'static Setting,
    /// The value as it was written.
    pub text: String,
    /// The value as it may be shown: without secrets.
    pub shown: String,
    /// `default`, or the file, variable or flag that sets it.
    pub origin: String,
}

impl<T> Resolved<T> {
    /// Whether nothing sets the setting.
    pub fn is_default(&self) -> bool {
        self.origin == DEFAULT_ORIGIN
    }

    /// Returns an error in this setting. `message` follows its name.
    pub(super) fn error(&self, message: &str, help: impl Into<String>) -> SettingError {
        SettingError::new(&self.origin, format!("{} {message}", self.setting.name), help)
    }

    /// Returns a warning that this setting, although it is set, has no effect.
    pub(super) fn no_effect(&self, because: &str) -> String {
        format!("{} ({}) has no effect: {because}", self.setting.name, self.origin)
    }

    /// Sets the value because of another setting, whose origin this is.
    pub(super) fn set(&mut self, value: T, text: &str, origin: &str) {
        self.value = value;
        self.text = text.to_owned();
        self.shown = format!("{text:?}");
        self.origin = origin.to_owned();
    }

    pub(super) fn entry(&self) -> SettingEntry<'_> {
        let Resolved { setting, text, shown, origin, .. } = self;
        SettingEntry { setting, text, shown, origin }
    }
}

impl<T> Deref for Resolved<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> fmt::Debug for Resolved<T> {
    /// Masks secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.shown, self.origin)
    }
}

/// The settings of all layers, read one by one.
#[derive(Debug)]
pub struct SettingReader {
    /// The values by name, each with its origin.
    pub values: BTreeMap<String, Value>,
    pub errors: Vec<SettingError>,
    pub warnings: Vec<String>,
    /// The reference's variables that ask for Redis.
    pub redis_variables: Vec<&'static str>,
    pub settings: &'static [Setting],
}

impl SettingReader {
    /// Reads a setting. One that is not of its format is an error, and has its default.
    pub fn read<F: Format>(&mut self, name: &str) -> Option<Resolved<F::Value>> {
        let setting = self.settings.iter().find(|setting| setting.name == name)?;
        let default = Value::new(Some(&DEFAULT_ORIGIN.to_owned()), setting.default);
        let set = self.values.get(setting.name).unwrap_or(&default);
        let origin = set.origin().unwrap_or(DEFAULT_ORIGIN);
        let accepted = F::read(set).map(|value| (value, set));
        if accepted.is_none() {
            let shown = truncated(setting.masked(&written(set)), MAX_SHOWN_BYTES);
            let message = format!("{} is {shown:?}", setting.name);
            let help = format!("write {}", setting.kind.expected());
            self.errors.push(SettingError::new(origin, message, help));
        }
        let (value, source) = accepted.or_else(|| Some((F::read(&default)?, &default)))?;
        Some(Resolved {
            value,
            setting,
            text: written(source),
            shown: F::shown(source, |text| setting.masked(text)),
            origin: source.origin().unwrap_or(DEFAULT_ORIGIN).to_owned(),
        })
    }
}

/// A [`Resolved`] value of any type, as text.
#[derive(Clone, Copy, Debug)]
pub struct SettingEntry<'a> {
    pub setting: &'static Setting,
    pub text: &'a str,
    pub shown: &'a str,
    pub origin: &'a str,
}

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
