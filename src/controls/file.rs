//! The file that keeps controls over a restart.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The version of the format.
const VERSION: u64 = 1;

/// The largest file that is read.
const MAX_BYTES: u64 = 64 << 20;

/// Reads the rows of a file: their ids and texts. A file that does not exist has none.
///
/// # Errors
///
/// The file cannot be read, or it is damaged; the message says where.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, String> {
    let text = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Ok(metadata) if metadata.len() > MAX_BYTES => {
            return Err(format!("it has {} bytes, the maximum is {MAX_BYTES}", metadata.len()));
        }
        _ => fs::read(path).map_err(|error| error.to_string())?,
    };
    let json: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if json["version"] != json!(VERSION) {
        return Err(format!("its version is {}, this weir reads {VERSION}", json["version"]));
    }
    let rows = json["controls"].as_object().ok_or("it has no member `controls`")?;
    Ok(rows.iter().map(|(id, row)| (id.clone(), row.to_string())).collect())
}

/// Replaces the file: a reader, and a restart after a crash, finds the old one or the new one.
///
/// # Errors
///
/// The file cannot be written.
pub(super) fn write(path: &Path, rows: Vec<(String, String)>) -> io::Result<()> {
    let rows = rows.into_iter().map(|(id, text)| {
        let row = serde_json::from_str(&text).unwrap_or(Value::Null);
        (id, row)
    });
    let json = json!({ "version": VERSION, "controls": rows.collect::<serde_json::Map<_, _>>() });
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    // Controls name clients.
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(format!("{json:#}\n").as_bytes())?;
    file.sync_all()?;
    drop(file);
    fs::rename(&new, path)?;
    // The new name is durable only with its directory.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Keeps a copy of a damaged file, which the next write would replace. Returns its path.
pub(super) fn keep_damaged(path: &Path) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_owned();
    name.push(".damaged");
    let copy = path.with_file_name(name);
    fs::copy(path, &copy).ok().map(|_| copy)
}
