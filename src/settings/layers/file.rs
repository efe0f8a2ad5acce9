//! Settings files, TOML or YAML.

mod toml;
mod yaml;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use config::{Value, ValueKind};

use super::Layer;
use crate::settings::error::SettingError;
use crate::settings::table;

/// The largest settings file.
const MAX_BYTES: u64 = 1 << 20;

/// How many errors of one kind are listed.
const MAX_LISTED: usize = 100;

/// A line and a column, both counted from 1.
type Place = (usize, usize);

/// Reads a settings file. The origin of each value is its place, `file:line:column`. Errors are added to `errors`.
pub(super) fn read(path: &Path, errors: &mut Vec<SettingError>) -> Layer {
    let mut entries = Entries::new(path.display().to_string());
    match text(path) {
        Ok((text, parse)) => parse(&text, &mut entries),
        Err((message, help)) => {
            entries.errors.push(SettingError::new(&entries.file, message, help));
        }
    }
    entries.finish(errors)
}

type Parse = fn(&str, &mut Entries);

/// Returns the text of a file and what parses it, or what is wrong and what to do.
fn text(path: &Path) -> Result<(String, Parse), (String, &'static str)> {
    let parse: Parse = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => toml::read,
        Some("yaml" | "yml") => yaml::read,
        _ => {
            let message = "the settings file is neither .toml nor .yaml";
            return Err((message.to_owned(), "rename it to .toml or .yaml"));
        }
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| (format!("cannot be read: {error}"), "name a file that can be read"))?;
    if text.len() as u64 > MAX_BYTES {
        let message = format!("the settings file has more than {MAX_BYTES} bytes");
        return Err((message, "remove what weir does not need"));
    }
    Ok((text, parse))
}

/// What a file sets, and its errors. No error quotes the file, whose values may be secrets.
struct Entries {
    file: String,
    layer: Layer,
    /// Where each known setting was set first.
    first: HashMap<&'static str, Place>,
    errors: Vec<SettingError>,
    unknown: usize,
    repeated: usize,
}

impl Entries {
    fn new(file: String) -> Entries {
        let (layer, first, errors) = (Layer::default(), HashMap::new(), Vec::new());
        Entries { file, layer, first, errors, unknown: 0, repeated: 0 }
    }

    fn origin(&self, (line, column): Place) -> String {
        format!("{}:{line}:{column}", self.file)
    }

    /// Sets a setting. `key` and `value` are the places of its key and of its value.
    fn set(&mut self, name: &str, key: Place, value: (Place, ValueKind)) {
        let Some(setting) = table::find(name) else {
            self.unknown += 1;
            // A suggestion takes longer than everything else.
            if self.unknown <= MAX_LISTED {
                self.errors.push(SettingError::unknown(name, &self.origin(key)));
            }
            return;
        };
        if let Some(first) = self.first.get(setting.name) {
            return self.repeated(name, key, *first);
        }
        self.first.insert(setting.name, key);
        let origin = self.origin(value.0);
        self.layer.0.push((setting.name.to_owned(), Value::new(Some(&origin), value.1)));
    }

    /// Reports a key that is there twice.
    fn repeated(&mut self, name: &str, key: Place, first: Place) {
        self.repeated += 1;
        if self.repeated <= MAX_LISTED {
            let message = format!("{name:?} is there twice, first at {}:{}", first.0, first.1);
            self.errors.push(SettingError::new(self.origin(key), message, "remove one of them"));
        }
    }

    /// Reports an error of the format.
    fn invalid(&mut self, place: Place, message: impl Into<String>, help: &str) {
        if self.errors.len() < MAX_LISTED {
            self.errors.push(SettingError::new(self.origin(place), message, help));
        }
    }

    fn finish(mut self, errors: &mut Vec<SettingError>) -> Layer {
        errors.append(&mut self.errors);
        for (count, what) in
            [(self.unknown, "names are no settings"), (self.repeated, "are there twice")]
        {
            if let Some(more @ 1..) = count.checked_sub(MAX_LISTED) {
                let message = format!("{more} more {what}");
                let help = "remove them; `weir settings` lists all settings";
                errors.push(SettingError::new(&self.file, message, help));
            }
        }
        self.layer
    }
}

/// Returns the name of a key below `group`, which is empty for none.
fn below(group: &str, key: &str) -> String {
    if group.is_empty() { key.to_owned() } else { format!("{group}.{key}") }
}
