//! Reads settings in layers, later over earlier: defaults, a settings file, the variables of envoyproxy/ratelimit (the
//! reference), `WEIR__…` variables, flags.

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;

use config::{Value, ValueKind};

use super::format::text;
use super::reference;
use super::setting::{DEFAULT_ORIGIN, SettingError, SettingReader};
use super::table::{self, SETTINGS};

/// The prefix of weir's own variables. Two underscores, since Kubernetes sets variables with one
/// (`WEIR_PORT`) in every container next to a Service named weir.
const VARIABLE_PREFIX: &str = "WEIR__";

/// What settings are read from, above their defaults.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub file: Option<PathBuf>,
    pub env: Vec<(String, String)>,
    /// Command-line flags: the flag, the name of its setting, its value.
    pub flags: Vec<(String, String, ValueKind)>,
}

pub fn read(inputs: &Inputs) -> SettingReader {
    let mut layers = Layers::default();
    for setting in SETTINGS.iter() {
        layers.set(setting.name, DEFAULT_ORIGIN, setting.default);
    }
    if let Some(path) = &inputs.file {
        layers.values.extend(file::read(path, &mut layers.errors));
    }
    let overrides = reference::read::read(&inputs.env, |name| {
        let value = layers.values.get(name);
        let is_default = value.is_some_and(|value| value.origin() == Some(DEFAULT_ORIGIN));
        // Half of an address takes the other half from the reference's default.
        if name == "debug.address" && is_default {
            return reference::DEFAULT_DEBUG_ADDRESS.to_owned();
        }
        value.and_then(text).unwrap_or_default()
    });
    layers.errors.extend(overrides.errors);
    for (name, origin, text) in overrides.set {
        layers.set(name, &origin, text);
    }
    for (variable, text) in &inputs.env {
        if let Some(name) = variable.strip_prefix(VARIABLE_PREFIX) {
            let name = name.to_ascii_lowercase().replace("__", ".");
            layers.set(&name, variable, text.clone());
        }
    }
    for (flag, name, value) in &inputs.flags {
        layers.set(name, flag, value.clone());
    }
    let Layers { values, errors } = layers;
    let (warnings, redis_variables) = (overrides.warnings, overrides.redis_variables);
    SettingReader { values, errors, warnings, redis_variables, settings: &SETTINGS }
}

/// The settings of the layers so far by name, each with its origin.
#[derive(Debug, Default)]
struct Layers {
    values: BTreeMap<String, Value>,
    errors: Vec<SettingError>,
}

impl Layers {
    /// Sets a value in place of that of a lower layer. An unknown name is an error.
    fn set(&mut self, name: &str, origin: &str, value: impl Into<ValueKind>) {
        let value = Value::new(Some(&origin.to_owned()), value);
        match table::find(name) {
            Some(_) => drop(self.values.insert(name.to_owned(), value)),
            None => self.errors.push(table::unknown(name, origin)),
        }
    }
}
