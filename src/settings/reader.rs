//! Reads the settings one by one, each as its format.

use std::collections::BTreeMap;

use config::Value;

use super::format::{Format, written};
use super::setting::{DEFAULT_ORIGIN, Resolved, Setting, SettingError};
use weir_rules::truncate;

/// The longest value in an error.
const MAX_SHOWN_BYTES: usize = 200;

/// The settings of all layers, read one by one.
#[derive(Debug)]
pub struct SettingReader {
    /// The values by name, each with its origin.
    pub values: BTreeMap<String, Value>,
    pub errors: Vec<SettingError>,
    pub warnings: Vec<String>,
    /// The reference's variables that ask for Redis.
    pub redis_variables: Vec<&'static str>,
}

impl SettingReader {
    /// Reads a setting. One that is not of its format is an error, and has its default.
    pub fn read<F: Format>(&mut self, setting: &'static Setting) -> Option<Resolved<F::Value>> {
        let default = Value::new(Some(&DEFAULT_ORIGIN.to_owned()), setting.default);
        let set = self.values.get(setting.name).unwrap_or(&default);
        let origin = set.origin().unwrap_or(DEFAULT_ORIGIN);
        let accepted = F::read(set).map(|value| (value, set));
        if accepted.is_none() {
            let mut shown = setting.masked(&written(set));
            truncate(&mut shown, MAX_SHOWN_BYTES);
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
