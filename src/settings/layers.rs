//! Reads settings in layers, later over earlier: defaults, a settings file, the variables of envoyproxy/ratelimit (the
//! reference), `WEIR__…` variables, flags.

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;

use config::builder::DefaultState;
use config::{Config, ConfigBuilder, Map, Source, Value, ValueKind};

use super::format::text;
use super::group::below;
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
    let mut errors = Vec::new();
    let mut defaults = Layer::default();
    for setting in SETTINGS.iter() {
        defaults.set(setting.name, DEFAULT_ORIGIN, setting.default, &mut errors);
    }
    let mut layers = Config::builder().add_source(defaults);
    if let Some(path) = &inputs.file {
        layers = layers.add_source(Layer(file::read(path, &mut errors)));
    }
    let below = values(layers.clone());
    let overrides = reference::read::read(&inputs.env, |name| {
        let value = below.get(name);
        let is_default = value.is_some_and(|value| value.origin() == Some(DEFAULT_ORIGIN));
        // Half of an address takes the other half from the reference's default.
        if name == "debug.address" && is_default {
            return reference::DEFAULT_DEBUG_ADDRESS.to_owned();
        }
        value.and_then(text).unwrap_or_default()
    });
    errors.extend(overrides.errors);
    let mut above = Layer::default();
    for (name, origin, text) in overrides.set {
        above.set(name, &origin, text, &mut errors);
    }
    for (variable, text) in &inputs.env {
        if let Some(name) = variable.strip_prefix(VARIABLE_PREFIX) {
            let name = name.to_ascii_lowercase().replace("__", ".");
            above.set(&name, variable, text.clone(), &mut errors);
        }
    }
    for (flag, name, value) in &inputs.flags {
        above.set(name, flag, value.clone(), &mut errors);
    }
    let values = values(layers.add_source(above));
    let (warnings, redis_variables) = (overrides.warnings, overrides.redis_variables);
    SettingReader { values, errors, warnings, redis_variables, settings: &SETTINGS }
}

/// Settings by name, each with its origin; later ones replace earlier ones.
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
