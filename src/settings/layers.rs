//! Puts settings together from where they may be said, later over earlier: defaults, a settings
//! file, the reference's variables, `WEIR__…` variables, flags.

use std::collections::BTreeMap;
use std::path::Path;

use config::{Config, Map, Source, Value, ValueKind};

use super::table::{self, SETTINGS};
use super::value::{Parsed, text};
use super::{Inputs, SettingError, redis, reference, secret};

/// The prefix of weir's own variables. Two underscores, since Kubernetes puts variables with one
/// (`WEIR_PORT`) into every container where a Service is named weir.
const PREFIX: &str = "WEIR__";

/// A setting's value and where it came from.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub value: Parsed,
    /// As it was written.
    pub text: String,
    /// `default`, a file's path, a variable's or a flag's name.
    pub origin: String,
}

/// All settings by name.
pub type All = BTreeMap<&'static str, Resolved>;

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
    /// Sets what there is. A name that is no setting is a error and stays out: in the tree it
    /// could take the place of a whole group, or of the value below it.
    fn set(
        &mut self,
        name: &str,
        origin: &str,
        value: impl Into<ValueKind>,
        errors: &mut Vec<SettingError>,
    ) {
        match table::find(name) {
            Some(_) => {
                self.0.push((name.to_owned(), Value::new(Some(&origin.to_owned()), value)));
            }
            None => errors.push(SettingError::unknown(name, origin)),
        }
    }
}

/// Reads all layers; every error is found, not only the first.
/// With the settings comes what to tell those who start the service.
pub fn resolve(inputs: &Inputs) -> Result<(All, Vec<String>), Vec<SettingError>> {
    let mut errors = Vec::new();
    let mut defaults = Layer::default();
    for setting in SETTINGS {
        defaults.set(setting.name, "default", setting.default, &mut errors);
    }
    let mut tree = Config::builder().add_source(defaults);
    if let Some(path) = &inputs.file {
        match read_file(path, &mut errors) {
            Ok(file) => tree = tree.add_source(file),
            Err(error) => errors.push(error),
        }
    }
    let mut below = Vec::new();
    flatten("", &build(tree.clone()).cache, &mut below);
    let overrides = reference::read(&inputs.env, |name| {
        let value = below.iter().find(|(below, _)| below == name).map(|(_, value)| value);
        // Half of an address takes the other half from the reference's default.
        if name == "debug.address" && value.is_some_and(|value| value.origin() == Some("default")) {
            return reference::DEFAULT_DEBUG_ADDRESS.to_owned();
        }
        value.and_then(text).unwrap_or_default()
    });
    errors.extend(overrides.errors);
    let mut variables = Layer::default();
    for (name, origin, text) in overrides.set {
        variables.set(name, &origin, text, &mut errors);
    }
    tree = tree.add_source(variables);
    tree = tree.add_source(from_own(&inputs.env, &mut errors));
    let mut flags = Layer::default();
    for (flag, name, value) in &inputs.flags {
        flags.set(name, flag, value.clone(), &mut errors);
    }
    let tree = build(tree.add_source(flags));

    let mut leaves = Vec::new();
    flatten("", &tree.cache, &mut leaves);
    let mut all = All::new();
    for (name, value) in leaves {
        let Some(setting) = table::find(&name) else { continue };
        let origin = value.origin().unwrap_or("default").to_owned();
        let shown = text(&value).unwrap_or_else(|| value.to_string());
        match setting.kind.read(&value) {
            Ok(value) => drop(all.insert(setting.name, Resolved { value, text: shown, origin })),
            Err(wanted) => errors.push(SettingError {
                origin,
                message: format!("{name} is {:?}", secret::shown(&name, &shown)),
                help: format!("write {wanted}"),
            }),
        }
    }
    let mut warnings = overrides.warnings;
    name_by_url(&mut all);
    match all.get("store.kind") {
        Some(kind) if kind.value == Parsed::Choice("redis") => drop(redis::read(&all, &mut errors)),
        Some(kind) => {
            let mut naming: Vec<_> =
                overrides.naming_redis.iter().map(|name| (*name).to_owned()).collect();
            let url = all.get("store.redis.url").filter(|url| !url.text.is_empty());
            if let (true, Some(url)) = (naming.is_empty(), url) {
                naming.push(format!("store.redis.url ({})", url.origin));
            }
            if !naming.is_empty() {
                let verb = if naming.len() == 1 { "has" } else { "have" };
                let (origin, naming) = (&kind.origin, naming.join(", "));
                warnings.push(format!(
                    "counters live in this process's memory, since {origin} says so: \
                     {naming} {verb} no effect"
                ));
            }
        }
        None => {}
    }
    if errors.is_empty() { Ok((all, warnings)) } else { Err(errors) }
}

/// Makes Redis the store where its URL is set and nothing says which store. To count in memory
/// regardless would let replicas count apart, each giving out the whole limit.
fn name_by_url(all: &mut All) {
    let url = all.get("store.redis.url").filter(|url| !url.text.is_empty());
    let Some(origin) = url.map(|url| url.origin.clone()) else { return };
    if let Some(kind) = all.get_mut("store.kind").filter(|kind| kind.origin == "default") {
        *kind = Resolved { value: Parsed::Choice("redis"), text: "redis".to_owned(), origin };
    }
}

fn build(builder: config::ConfigBuilder<config::builder::DefaultState>) -> Config {
    // Layers cannot fail to collect: files were read before, variables are text.
    builder.build().unwrap_or_default()
}

/// A settings file, TOML or YAML by its extension, with its path as the origin of its values.
fn read_file(path: &Path, errors: &mut Vec<SettingError>) -> Result<Layer, SettingError> {
    let setting_error = |message: String, help: &str| SettingError {
        origin: path.display().to_string(),
        message,
        help: help.to_owned(),
    };
    let format = match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => config::FileFormat::Toml,
        Some("yaml" | "yml") => config::FileFormat::Yaml,
        _ => {
            return Err(setting_error(
                "the settings file is neither .toml nor .yaml".into(),
                "name it so that its extension says what it is",
            ));
        }
    };
    let read = std::fs::read_to_string(path).map_err(|error| {
        setting_error(format!("cannot be read: {error}"), "name a file that is there")
    })?;
    let file = Config::builder()
        .add_source(config::File::from_str(&read, format))
        .build()
        .map_err(|error| setting_error(syntax_error(&error.to_string()), "fix the file"))?;
    let mut leaves = Vec::new();
    flatten("", &file.cache, &mut leaves);
    leaves.sort_by(|(a, _), (b, _)| a.cmp(b));
    let origin = path.display().to_string();
    let mut layer = Layer::default();
    for (name, value) in leaves {
        layer.set(&name, &origin, value.kind, errors);
    }
    Ok(layer)
}

/// What a parser's error says, without the text of the file that it quotes, which may be a secret.
fn syntax_error(error: &str) -> String {
    let lines: Vec<&str> = error.trim_end().lines().collect();
    match lines.as_slice() {
        // Of TOML: the place, the line itself with marks below, and what is wrong.
        [place, _, _, .., message] => format!("{place}: {message}"),
        // Of YAML: what is wrong, and the place. A key that is there twice is quoted.
        [line] => match line.split_once(" at byte ") {
            Some((message, _)) if !message.contains('"') => (*line).to_owned(),
            Some((_, place)) => format!("YAML parse error at byte {place}"),
            None => "it cannot be parsed".to_owned(),
        },
        _ => "it cannot be parsed".to_owned(),
    }
}

fn from_own(env: &[(String, String)], errors: &mut Vec<SettingError>) -> Layer {
    let mut layer = Layer::default();
    for (variable, text) in env {
        if let Some(name) = variable.strip_prefix(PREFIX) {
            let name = name.to_ascii_lowercase().replace("__", ".");
            layer.set(&name, variable, text.clone(), errors);
        }
    }
    layer
}

/// The tree's leaves by their dotted names.
fn flatten(prefix: &str, value: &Value, leaves: &mut Vec<(String, Value)>) {
    match &value.kind {
        ValueKind::Table(table) => {
            for (key, value) in table {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&name, value, leaves);
            }
        }
        _ => leaves.push((prefix.to_owned(), value.clone())),
    }
}
