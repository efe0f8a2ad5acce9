//! Settings files, TOML or YAML.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use config::{Config, FileFormat};

use super::{Layer, flatten};
use crate::settings::error::SettingError;
use crate::settings::table;

/// The largest settings file.
const MAX_BYTES: u64 = 1 << 20;

/// How many unknown names are listed.
const MAX_UNKNOWN: usize = 100;

/// Reads a settings file. The origin of its values is its path.
///
/// # Errors
///
/// If the file cannot be read or parsed. Unknown names are added to `errors`.
pub(super) fn read(path: &Path, errors: &mut Vec<SettingError>) -> Result<Layer, SettingError> {
    let origin = path.display().to_string();
    let format = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => FileFormat::Toml,
        Some("yaml" | "yml") => FileFormat::Yaml,
        _ => {
            let message = "the settings file is neither .toml nor .yaml";
            return Err(SettingError::new(origin, message, "rename it to .toml or .yaml"));
        }
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| {
        let message = format!("cannot be read: {error}");
        SettingError::new(&origin, message, "name a file that can be read")
    })?;
    if text.len() as u64 > MAX_BYTES {
        let message = format!("the settings file has more than {MAX_BYTES} bytes");
        return Err(SettingError::new(origin, message, "remove what weir does not need"));
    }
    let file = Config::builder().add_source(config::File::from_str(&text, format)).build();
    let file = file.map_err(|error| {
        SettingError::new(&origin, syntax_error(&error.to_string()), "fix the file")
    })?;
    let mut leaves = BTreeMap::new();
    flatten("", &file.cache, &mut leaves);
    let mut layer = Layer::default();
    let mut unknown = 0;
    for (name, value) in leaves {
        unknown += usize::from(table::find(&name).is_none());
        // A suggestion takes longer than everything else.
        if unknown <= MAX_UNKNOWN || table::find(&name).is_some() {
            layer.set(&name, &origin, value.kind, errors);
        }
    }
    if unknown > MAX_UNKNOWN {
        let message = format!("{} more names are no settings", unknown - MAX_UNKNOWN);
        let help = "remove them; `weir settings` lists all settings";
        errors.push(SettingError::new(origin, message, help));
    }
    Ok(layer)
}

/// Returns a parser's error without its quotes from the file, which may be secrets.
fn syntax_error(error: &str) -> String {
    let lines: Vec<&str> = error.trim_end().lines().collect();
    match lines.as_slice() {
        // TOML: the place, the line itself with marks below, and the message.
        [place, _, _, .., message] => format!("{place}: {message}"),
        // YAML: the message and the place. A duplicate key is quoted.
        [line] => match line.split_once(" at byte ") {
            Some((message, _)) if !message.contains('"') => (*line).to_owned(),
            Some((_, place)) => format!("YAML parse error at byte {place}"),
            None => "it cannot be parsed".to_owned(),
        },
        _ => "it cannot be parsed".to_owned(),
    }
}
