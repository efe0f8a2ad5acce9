//! The file that keeps the controls (blocks, allows, limits) of operators over a restart: a JSON document, and a copy.
//!
//! ```text
//! {"version":1,"checksum":"5a0c8d1f","controls":{
//! "block-1":{…},
//! "block-2":{…}
//! }}
//! ```
//!
//! The checksum is that of the text of `controls`. A write replaces the file and then the copy, each by a new
//! file that is synced and renamed, so that a crash leaves one of them whole.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use weir_common::regular;

/// The largest file that is read: more than all controls can take.
const MAX_BYTES: u64 = 1 << 30;

/// The JSON texts of controls by their ids.
type Rows = BTreeMap<String, String>;

#[derive(Debug)]
pub(super) struct ControlFile {
    pub path: PathBuf,
    /// The members of `controls` as text, by their ids.
    members: Rows,
    /// Whether the file or its copy lacks a change, or is to be replaced.
    pub is_outdated: bool,
    /// Whether the directory was missing at the start, such as a volume that is not mounted, and still is.
    pub is_unread: bool,
}

/// What a file and its copy have.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The rows of the file, else of the copy; none if neither is whole.
    pub rows: Option<Rows>,
    /// The files that exist and are not whole, and why.
    pub damaged: Vec<(PathBuf, String)>,
    /// Whether one of the files is damaged or missing, while there are rows.
    pub is_outdated: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<'a> {
    version: u64,
    checksum: String,
    #[serde(borrow)]
    controls: &'a RawValue,
}

impl ControlFile {
    pub fn new(path: PathBuf) -> ControlFile {
        let is_unread = !directory(&path).is_dir();
        ControlFile { path, members: Rows::new(), is_outdated: false, is_unread }
    }

    /// Changes rows: ids, and their texts where there still are any. The next write has them.
    pub fn change(&mut self, rows: Vec<(String, Option<String>)>) {
        self.is_outdated |= !rows.is_empty();
        for (id, text) in rows {
            match text {
                Some(text) => {
                    let member = format!("\n{}:{text}", serde_json::Value::from(id.as_str()));
                    self.members.insert(id, member);
                }
                None => drop(self.members.remove(&id)),
            }
        }
    }

    /// Replaces the file and its copy.
    pub fn write(&mut self) -> io::Result<()> {
        if self.is_unread && both(&self.path).iter().any(|path| path.exists()) {
            return Err(io::Error::other("it has appeared: restart weir to read it"));
        }
        self.is_unread &= !directory(&self.path).is_dir();
        let mut controls = String::from("{");
        for (n, member) in self.members.values().enumerate() {
            controls.push_str(if n == 0 { "" } else { "," });
            controls.push_str(member);
        }
        controls.push_str("\n}");
        let checksum = crc32fast::hash(controls.as_bytes());
        let text =
            format!("{{\"version\":1,\"checksum\":\"{checksum:08x}\",\"controls\":{controls}}}\n");
        for path in both(&self.path) {
            let name = path.file_name().unwrap_or_default();
            regular::replace(directory(&path), name, text.as_bytes())?;
        }
        self.is_outdated = false;
        Ok(())
    }
}

pub(super) fn read(path: &Path) -> Found {
    let mut found = Found::default();
    for path in both(path) {
        match read_one(&path) {
            Ok(Some(rows)) => {
                found.rows.get_or_insert(rows);
            }
            Ok(None) => found.is_outdated = true,
            Err(error) => {
                found.is_outdated = true;
                found.damaged.push((path, error));
            }
        }
    }
    // Without rows, an operator may still repair a file.
    found.is_outdated &= found.rows.is_some();
    found
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the paths of a file and of its copy.
pub(super) fn both(path: &Path) -> [PathBuf; 2] {
    [path.to_owned(), beside(path, ".copy")]
}

/// Returns the rows of a file; none if it does not exist.
fn read_one(path: &Path) -> Result<Option<Rows>, String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
        Ok(metadata) if !metadata.is_file() => return Err("it is not a regular file".to_owned()),
        Ok(metadata) if metadata.len() > MAX_BYTES => {
            return Err(format!("it has {} bytes, the maximum is {MAX_BYTES}", metadata.len()));
        }
        Ok(_) => {}
    }
    let text = fs::read(path).map_err(|error| error.to_string())?;
    match text.first() {
        None => Err("it is empty".to_owned()),
        Some(b'{') => read_document(&text).map(Some),
        Some(_) => Err("it is not a document of controls".to_owned()),
    }
}

fn read_document(text: &[u8]) -> Result<Rows, String> {
    let read: Document<'_> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if read.version != 1 {
        return Err(format!("its version is {}, this weir reads 1", read.version));
    }
    let controls = read.controls.get();
    let checksum = format!("{:08x}", crc32fast::hash(controls.as_bytes()));
    if read.checksum != checksum {
        return Err("its checksum is wrong".to_owned());
    }
    let rows: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(controls).map_err(|error| error.to_string())?;
    Ok(rows.into_iter().map(|(id, row)| (id, row.get().to_owned())).collect())
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}
