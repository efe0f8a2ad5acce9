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
use weir_rules::truncated;

const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_LISTED_ERRORS: usize = 100;
const MAX_NAME_BYTES: usize = 100;

/// A line and a column, both counted from 1.
type Place = (usize, usize);

/// Reads a settings file. The origin of each value is its place, `file:line:column`. Errors are added to `errors`.
pub(super) fn read(path: &Path, errors: &mut Vec<SettingError>) -> Layer {
    let mut entries = Entries { file: path.display().to_string(), ..Entries::default() };
    match text(path) {
        Ok((text, parse)) => parse(&text, &mut entries),
        Err((message, help)) => {
            entries.errors.push(SettingError::new(&entries.file, message, help));
        }
    }
    errors.append(&mut entries.errors);
    if entries.omitted > 0 {
        let message = format!("{} more errors are not listed", entries.omitted);
        errors.push(SettingError::new(entries.file, message, "fix the others first"));
    }
    entries.layer
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
    let read =
        File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| (format!("cannot be read: {error}"), "name a file that can be read"))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the settings file has more than {MAX_FILE_BYTES} bytes");
        return Err((message, "remove what weir does not need"));
    }
    Ok((text, parse))
}

/// What a file sets, and its errors. No error quotes the file, whose values may be secrets.
#[derive(Default)]
struct Entries {
    file: String,
    layer: Layer,
    /// Where each setting was set first.
    first: HashMap<&'static str, Place>,
    errors: Vec<SettingError>,
    omitted: usize,
}

impl Entries {
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

    fn repeated(&mut self, name: &str, key: impl FnOnce() -> Place, (line, column): Place) {
        let message = || format!("{:?} is there twice, first at {line}:{column}", shown(name));
        self.report(key, |origin| SettingError::new(origin, message(), "remove one of them"));
    }

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
        if self.errors.len() < MAX_LISTED_ERRORS {
            self.errors.push(error(self.origin(place())));
        } else {
            self.omitted += 1;
        }
    }

    fn origin(&self, (line, column): Place) -> String {
        format!("{}:{line}:{column}", self.file)
    }
}

fn shown(name: &str) -> String {
    truncated(name, MAX_NAME_BYTES)
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
