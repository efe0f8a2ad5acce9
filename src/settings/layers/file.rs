//! Settings files, TOML or YAML.

mod toml;
mod yaml;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use config::{Value, ValueKind};

use super::Layer;
use crate::settings::setting::SettingError;
use crate::settings::table::{self, below};
use weir_rules::truncate;

/// The largest settings file.
const MAX_BYTES: u64 = 1 << 20;

/// How many errors are listed.
const MAX_LISTED: usize = 100;

/// The longest name in an error.
const MAX_NAME_BYTES: usize = 100;

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

/// Returns the text of a file and what parses it, or the error and what to do.
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
    /// Where each setting was set first.
    first: HashMap<&'static str, Place>,
    errors: Vec<SettingError>,
    omitted: usize,
}

impl Entries {
    fn new(file: String) -> Entries {
        let (layer, first, errors) = (Layer::default(), HashMap::new(), Vec::new());
        Entries { file, layer, first, errors, omitted: 0 }
    }

    /// Sets a setting. `key` and `place` return the places of its name and of its value.
    fn set(
        &mut self,
        name: &str,
        key: impl FnOnce() -> Place,
        place: impl FnOnce() -> Place,
        kind: ValueKind,
    ) {
        let Some(setting) = table::find(name) else {
            return self.report(key, |origin| table::unknown(&shown(name), &origin));
        };
        if let Some(first) = self.first.get(setting.name) {
            return self.repeated(name, key, *first);
        }
        self.first.insert(setting.name, key());
        let value = Value::new(Some(&self.origin(place())), kind);
        self.layer.0.push((setting.name.to_owned(), value));
    }

    /// Reports a key that is there twice.
    fn repeated(&mut self, name: &str, key: impl FnOnce() -> Place, (line, column): Place) {
        let message = || format!("{:?} is there twice, first at {line}:{column}", shown(name));
        self.report(key, |origin| SettingError::new(origin, message(), "remove one of them"));
    }

    /// Reports an error of the format.
    fn invalid(&mut self, place: impl FnOnce() -> Place, message: impl Into<String>, help: &str) {
        self.report(place, |origin| SettingError::new(origin, message, help));
    }

    /// Lists an error, unless there are many. Making one takes longer than reading the file: finding its place reads
    /// a line, and it may suggest a name.
    fn report(
        &mut self,
        place: impl FnOnce() -> Place,
        error: impl FnOnce(String) -> SettingError,
    ) {
        if self.errors.len() < MAX_LISTED {
            self.errors.push(error(self.origin(place())));
        } else {
            self.omitted += 1;
        }
    }

    fn origin(&self, (line, column): Place) -> String {
        format!("{}:{line}:{column}", self.file)
    }

    fn finish(mut self, errors: &mut Vec<SettingError>) -> Layer {
        errors.append(&mut self.errors);
        if self.omitted > 0 {
            let message = format!("{} more errors are not listed", self.omitted);
            errors.push(SettingError::new(self.file, message, "fix the others first"));
        }
        self.layer
    }
}

fn shown(name: &str) -> String {
    let mut name = name.to_owned();
    truncate(&mut name, MAX_NAME_BYTES);
    name
}

/// Returns a number of a file as such, so that `010` is ten and `1e3` a thousand, and anything else as text.
fn number_or_text(text: &str) -> ValueKind {
    let is_float = || text.bytes().any(|byte| byte.is_ascii_digit());
    let in_base = |(prefix, base)| {
        text.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, base).ok())
    };
    let whole = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find_map(in_base);
    match (whole.or_else(|| text.parse().ok()), text.parse()) {
        (Some(whole), _) => ValueKind::I64(whole),
        (_, Ok(number)) if is_float() => ValueKind::Float(number),
        _ => ValueKind::String(text.to_owned()),
    }
}
