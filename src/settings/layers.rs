//! Puts settings together from where they may be said, later over earlier: defaults, a settings
//! file, the reference's variables, `WEIR__…` variables, flags.

use std::collections::BTreeMap;
use std::path::Path;

use config::{Config, Map, Source, Value, ValueKind};

use super::table::{self, SETTINGS};
use super::value::{Parsed, text};
use super::{Inputs, Mistake, reference};

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
    fn set(&mut self, name: &str, origin: &str, text: String) {
        let value = Value::new(Some(&origin.to_owned()), ValueKind::String(text));
        self.0.push((name.to_owned(), value));
    }
}

/// Reads all layers; every mistake is found, not only the first.
pub fn resolve(inputs: &Inputs) -> Result<All, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let mut defaults = Layer::default();
    for setting in SETTINGS {
        defaults.set(setting.name, "default", setting.default.to_owned());
    }
    let mut tree = Config::builder().add_source(defaults);
    if let Some(path) = &inputs.file {
        match read_file(path) {
            Ok(file) => tree = tree.add_source(file),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    let below = build(tree.clone());
    tree = tree.add_source(from_reference(&inputs.env, &below));
    tree = tree.add_source(from_own(&inputs.env));
    let mut flags = Layer::default();
    for (flag, name, text) in &inputs.flags {
        flags.set(name, flag, text.clone());
    }
    let tree = build(tree.add_source(flags));

    let mut all = All::new();
    let mut leaves = Vec::new();
    flatten("", &tree.cache, &mut leaves);
    for (name, value) in leaves {
        let origin = value.origin().unwrap_or("default").to_owned();
        let shown = text(&value).unwrap_or_else(|| value.to_string());
        match table::find(&name) {
            None => mistakes.push(Mistake::unknown(&name, &origin)),
            Some(setting) => match setting.kind.read(&value) {
                Ok(value) => {
                    drop(all.insert(setting.name, Resolved { value, text: shown, origin }))
                }
                Err(wanted) => mistakes.push(Mistake {
                    origin,
                    message: format!("{} is {shown:?}", setting.name),
                    help: format!("write {wanted}"),
                }),
            },
        }
    }
    if mistakes.is_empty() { Ok(all) } else { Err(mistakes) }
}

fn build(builder: config::ConfigBuilder<config::builder::DefaultState>) -> Config {
    // Layers cannot fail to collect: files were read before, variables are text.
    builder.build().unwrap_or_default()
}

/// A settings file, TOML or YAML by its extension, with its path as the origin of its values.
fn read_file(path: &Path) -> Result<Config, Mistake> {
    let mistake = |message: String, help: &str| Mistake {
        origin: path.display().to_string(),
        message,
        help: help.to_owned(),
    };
    let format = match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => config::FileFormat::Toml,
        Some("yaml" | "yml") => config::FileFormat::Yaml,
        _ => {
            return Err(mistake(
                "the settings file is neither .toml nor .yaml".into(),
                "name it so that its extension says what it is",
            ));
        }
    };
    let read = std::fs::read_to_string(path).map_err(|error| {
        mistake(format!("cannot be read: {error}"), "name a file that is there")
    })?;
    let mut file = Config::builder()
        .add_source(config::File::from_str(&read, format))
        .build()
        .map_err(|error| mistake(error.to_string(), "mend the file"))?;
    let mut leaves = Vec::new();
    flatten("", &file.cache, &mut leaves);
    let origin = path.display().to_string();
    let leaves =
        leaves.into_iter().map(|(name, value)| (name, Value::new(Some(&origin), value.kind)));
    file = Config::builder().add_source(Layer(leaves.collect())).build().unwrap_or_default();
    Ok(file)
}

fn from_reference(env: &[(String, String)], below: &Config) -> Layer {
    let mut layer = Layer::default();
    let mut so_far = BTreeMap::new();
    for &(variable, meaning) in reference::VARIABLES {
        let Some((_, text)) = env.iter().find(|(name, _)| name == variable) else { continue };
        let name = meaning.setting().name;
        let without =
            so_far.get(name).cloned().unwrap_or_else(|| below.get_string(name).unwrap_or_default());
        let text = meaning.translate(text, &without);
        so_far.insert(name, text.clone());
        layer.set(name, variable, text);
    }
    layer
}

fn from_own(env: &[(String, String)]) -> Layer {
    let mut layer = Layer::default();
    for (variable, text) in env {
        if let Some(name) = variable.strip_prefix(PREFIX) {
            let name = name.to_ascii_lowercase().replace("__", ".");
            layer.set(&name, variable, text.clone());
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
