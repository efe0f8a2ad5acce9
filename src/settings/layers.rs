//! Layers settings, later over earlier: defaults, a settings file, the reference's variables,
//! `WEIR__…` variables, flags.

mod file;

use std::collections::BTreeMap;

use config::builder::DefaultState;
use config::{Config, ConfigBuilder, Map, Source, Value, ValueKind};

use super::format::text;
use super::setting::{DEFAULT_ORIGIN, SettingError, SettingReader};
use super::table::{self, SETTINGS, below};
use super::{Inputs, reference};

/// The prefix of weir's own variables. Two underscores, since Kubernetes sets variables with one
/// (`WEIR_PORT`) in every container next to a Service named weir.
const VARIABLE_PREFIX: &str = "WEIR__";

pub fn read(inputs: &Inputs) -> SettingReader {
    let mut errors = Vec::new();
    let mut defaults = Layer::default();
    for setting in SETTINGS.iter() {
        defaults.set(setting.name, DEFAULT_ORIGIN, setting.default, &mut errors);
    }
    let mut layers = Config::builder().add_source(defaults);
    if let Some(path) = &inputs.file {
        layers = layers.add_source(file::read(path, &mut errors));
    }
    let below = values(layers.clone());
    let overrides = reference::read(&inputs.env, |name| {
        let value = below.get(name);
        let is_default = value.is_some_and(|value| value.origin() == Some(DEFAULT_ORIGIN));
        // Half of an address takes the other half from the reference's default.
        if name == "debug.address" && is_default {
            return reference::DEFAULT_DEBUG_ADDRESS.to_owned();
        }
        value.and_then(text).unwrap_or_default()
    });
    errors.extend(overrides.errors);
    let mut variables = Layer::default();
    for (name, origin, text) in overrides.set {
        variables.set(name, &origin, text, &mut errors);
    }
    let own = own_variables(&inputs.env, &mut errors);
    let mut flags = Layer::default();
    for (flag, name, value) in &inputs.flags {
        flags.set(name, flag, value.clone(), &mut errors);
    }
    let values = values(layers.add_source(variables).add_source(own).add_source(flags));
    let (warnings, redis_variables) = (overrides.warnings, overrides.redis_variables);
    SettingReader { values, errors, warnings, redis_variables }
}

/// One layer: settings by name, each with its origin.
#[derive(Clone, Debug, Default)]
struct Layer(Vec<(String, Value)>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.iter().cloned().collect())
    }
}

impl Layer {
    /// Sets a value. An unknown name is an error: in the tree it could replace a group, or the value above it.
    fn set(
        &mut self,
        name: &str,
        origin: &str,
        value: impl Into<ValueKind>,
        errors: &mut Vec<SettingError>,
    ) {
        match table::find(name) {
            Some(_) => self.0.push((name.to_owned(), Value::new(Some(&origin.to_owned()), value))),
            None => errors.push(table::unknown(name, origin)),
        }
    }
}

fn own_variables(env: &[(String, String)], errors: &mut Vec<SettingError>) -> Layer {
    let mut layer = Layer::default();
    for (variable, text) in env {
        if let Some(name) = variable.strip_prefix(VARIABLE_PREFIX) {
            let name = name.to_ascii_lowercase().replace("__", ".");
            layer.set(&name, variable, text.clone(), errors);
        }
    }
    layer
}

fn values(layers: ConfigBuilder<DefaultState>) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    // Layers cannot fail to collect: files were read before, variables are text.
    flatten("", &layers.build().unwrap_or_default().cache, &mut values);
    values
}

/// Adds the leaves of a tree by their dotted names.
fn flatten(prefix: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
    match &value.kind {
        ValueKind::Table(table) => {
            for (key, value) in table {
                flatten(&below(prefix, key), value, leaves);
            }
        }
        _ => drop(leaves.insert(prefix.to_owned(), value.clone())),
    }
}
