//! Reads a settings file, TOML or YAML: the layer above the defaults.

mod entries;
mod toml;
mod yaml;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use config::Value;

use crate::settings::setting::SettingError;
use entries::Entries;

const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads a settings file. The origin of each value is its place, `file:line:column`. Errors are added to `errors`.
pub(super) fn read(path: &Path, errors: &mut Vec<SettingError>) -> Vec<(String, Value)> {
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
    entries.values
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
