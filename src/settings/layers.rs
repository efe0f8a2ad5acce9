//! Layers settings, later over earlier: defaults, a settings file, the reference's variables,
//! `WEIR__…` variables, flags.

mod file;

use config::{Value, ValueKind};

use super::format::text;
use super::setting::SettingReader;
use super::table;
use super::{Inputs, reference};

/// The prefix of weir's own variables. Two underscores, since Kubernetes sets variables with one
/// (`WEIR_PORT`) in every container next to a Service named weir.
const VARIABLE_PREFIX: &str = "WEIR__";

pub fn read(inputs: &Inputs) -> SettingReader {
    let mut reader = SettingReader::default();
    if let Some(path) = &inputs.file {
        reader.values = file::read(path, &mut reader.errors);
    }
    let overrides = reference::read(&inputs.env, |name| match reader.values.get(name) {
        Some(value) => text(value).unwrap_or_default(),
        // Half of an address takes the other half from the reference's default.
        None if name == "debug.address" => reference::DEFAULT_DEBUG_ADDRESS.to_owned(),
        None => table::find(name).map_or("", |setting| setting.default).to_owned(),
    });
    reader.errors.extend(overrides.errors);
    reader.warnings = overrides.warnings;
    reader.redis_variables = overrides.redis_variables;
    for (name, origin, text) in overrides.set {
        reader.set(name, &origin, text);
    }
    for (variable, text) in &inputs.env {
        if let Some(name) = variable.strip_prefix(VARIABLE_PREFIX) {
            let name = name.to_ascii_lowercase().replace("__", ".");
            reader.set(&name, variable, text.clone());
        }
    }
    for (flag, name, value) in &inputs.flags {
        reader.set(name, flag, value.clone());
    }
    reader
}

impl SettingReader {
    /// Sets a value, over that of an earlier layer.
    fn set(&mut self, name: &str, origin: &str, value: impl Into<ValueKind>) {
        let Some(setting) = table::find(name) else {
            return self.errors.push(table::unknown(name, origin));
        };
        self.values.insert(setting.name, Value::new(Some(&origin.to_owned()), value));
    }
}
