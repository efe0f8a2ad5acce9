//! Reads the file, and what it lacks from its copy.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{RowText, VERSION, copy_of, damaged};
use weir_common::escape::escape;

/// The largest file that is read: more than all controls can take.
const MAX_BYTES: u64 = 1 << 30;

/// The start of the first line.
const HEADER: &str = "weir controls ";

/// The most damaged lines that are named.
const MAX_NAMED: usize = 10;

/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 100;

/// What a file and its copy have.
#[derive(Debug, Default)]
pub(in crate::controls) struct Found {
    /// The ids and texts of rows.
    pub rows: Vec<(String, String)>,
    /// The number of the first free line.
    pub next: u64,
    /// The errors of the file; empty if there are none.
    pub damage: Vec<String>,
    /// Changes that were taken from the copy.
    pub restored: usize,
    /// Changes that were lost, at least.
    pub lost: usize,
    /// Controls lost by earlier damage, while the operator keeps the damaged file.
    pub lost_before: usize,
    /// Whether the file must be rewritten.
    pub is_outdated: bool,
}

/// The lines of a file.
#[derive(Debug, Default)]
struct Lines {
    /// The number of the first one, and what was lost before; none if the first line is damaged.
    header: Option<(u64, usize)>,
    changes: BTreeMap<u64, RowText>,
    damaged: usize,
    named: Vec<String>,
    /// Whether the last line is not whole.
    is_torn: bool,
}

#[derive(Deserialize)]
struct Line {
    n: u64,
    id: String,
    row: Option<Box<RawValue>>,
}

/// Reads a file with its copy. One that does not exist is empty.
///
/// # Errors
///
/// Neither of them can be used.
pub(in crate::controls) fn read(path: &Path) -> Result<Found, String> {
    let (mut text, mut error) = match read_text(path) {
        Ok(text) => (text, None),
        Err(error) => (None, Some(error)),
    };
    if let Some(json) = text.take_if(|text| text.trim_ascii_start().starts_with(b"{")) {
        match read_version_1(&json) {
            Ok(found) => return Ok(found),
            // Another version of which the first byte is damaged.
            Err(_) if Lines::read(&json).is_ok_and(|it| !it.changes.is_empty()) => {
                text = Some(json)
            }
            Err(wrong) => error = Some(wrong),
        }
    }
    let copy = read_text(&copy_of(path)).ok().flatten();
    let copy = copy.and_then(|text| Lines::read(&text).ok());
    let mut damage = Vec::new();
    let lines = text.as_deref().map(Lines::read).transpose()?;
    match (&lines, error) {
        (None, None) if copy.is_none() => return Ok(Found { next: 1, ..Found::default() }),
        (None, None) => damage.push("it does not exist, but its copy does".to_owned()),
        (_, Some(error)) if copy.is_none() => return Err(error),
        (_, Some(error)) => damage.push(error),
        (Some(_), None) => {}
    }
    let is_unreadable = lines.is_none() && !damage.is_empty() && path.exists();
    let mut found = join(lines, copy, damage);
    // The copy may be that of an older file.
    found.lost = found.lost.max(usize::from(is_unreadable));
    // Else the operator has seen that.
    if !damaged(path).exists() {
        found.lost_before = 0;
    }
    Ok(found)
}

/// Returns the bytes of a file; none if it does not exist.
fn read_text(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
        Ok(metadata) if !metadata.is_file() => Err("it is not a regular file".to_owned()),
        Ok(metadata) if metadata.len() > MAX_BYTES => {
            Err(format!("it has {} bytes, the maximum is {MAX_BYTES}", metadata.len()))
        }
        Ok(_) => fs::read(path).map(Some).map_err(|error| error.to_string()),
    }
}

/// Reads a file of version 1: one JSON value.
fn read_version_1(text: &[u8]) -> Result<Found, String> {
    let json: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if json["version"] != 1 {
        return Err(unknown_version(&json["version"]));
    }
    let rows = json["controls"].as_object().ok_or("it has no member `controls`")?;
    let rows = rows.iter().map(|(id, row)| (id.clone(), row.to_string())).collect();
    Ok(Found { rows, next: 1, is_outdated: true, ..Found::default() })
}

fn unknown_version(version: impl std::fmt::Display) -> String {
    format!("its version is {version}, this weir reads 1 and {VERSION}")
}

impl Lines {
    /// # Errors
    ///
    /// The version is unknown.
    fn read(text: &[u8]) -> Result<Lines, String> {
        let mut lines = Lines::default();
        let (whole, torn) = match text.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => text.split_at(end + 1),
            None => (&[][..], text),
        };
        for (number, line) in (1..).zip(whole.split_inclusive(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            match checked(line) {
                Some(line) if line.starts_with(HEADER) => lines.header = Some(read_header(line)?),
                Some(line) if lines.add(line) => {}
                _ => lines.damaged(number, line),
            }
        }
        // A crash may leave a part of a line that was not yet answered.
        lines.is_torn = !torn.is_empty() && !checked(torn).is_some_and(|line| lines.add(line));
        Ok(lines)
    }

    /// Adds a line. Returns whether it is one.
    fn add(&mut self, line: &str) -> bool {
        let Ok(Line { n, id, row }) = serde_json::from_str(line) else { return false };
        self.changes.insert(n, (id, row.map(|row| row.get().to_owned())));
        true
    }

    fn damaged(&mut self, number: usize, line: &[u8]) {
        self.damaged += usize::from(number > 1);
        if self.named.len() < MAX_NAMED {
            let text = String::from_utf8_lossy(line);
            let id = text.split_once(r#""id":""#).and_then(|(_, rest)| rest.split('"').next());
            let id: String = id.unwrap_or_default().chars().take(MAX_NAME_BYTES).collect();
            self.named.push(match (number, id.as_str()) {
                (1, _) => "line 1".to_owned(),
                (_, "") => format!("line {number}"),
                (_, id) => format!("line {number} ({})", escape(id)),
            });
        }
    }
}

/// Returns a line without its checksum, if that is right.
fn checked(line: &[u8]) -> Option<&str> {
    let (sum, line) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let is_right =
        sum.len() == 8 && u32::from_str_radix(sum, 16) == Ok(crc32fast::hash(line.as_bytes()));
    is_right.then_some(line)
}

/// Returns the number of the first line, and the number of changes lost before.
fn read_header(header: &str) -> Result<(u64, usize), String> {
    let mut words = header.strip_prefix(HEADER).unwrap_or_default().split(' ');
    let version = words.next().unwrap_or_default();
    if version != VERSION.to_string() {
        return Err(unknown_version(escape(version)));
    }
    let mut number =
        || words.next().and_then(|word| word.parse().ok()).ok_or("its first line is invalid");
    Ok((number()?, usize::try_from(number()?).unwrap_or(usize::MAX)))
}

/// Joins the lines of a file with what its copy has besides. Without the file the copy has all.
fn join(lines: Option<Lines>, copy: Option<Lines>, mut damage: Vec<String>) -> Found {
    let is_there = lines.is_some();
    let has_copy = copy.is_some();
    let lines = lines.unwrap_or_default();
    let mut copy = copy.unwrap_or_default();
    let is_whole = is_there && lines.damaged == 0 && lines.header.is_some();
    let header = lines.header.or(copy.header);
    let mut changes = lines.changes;
    let least = changes.keys().next().or(copy.changes.keys().next()).copied();
    let first = header.map(|(first, _)| first).or(least).unwrap_or(1);
    // Lines from before the file was replaced are obsolete.
    let of_copy = copy.changes.split_off(&first);
    let mut restored = 0;
    for (n, change) in of_copy {
        changes.entry(n).or_insert_with(|| {
            restored += 1;
            change
        });
    }
    let next = changes.keys().next_back().map_or(first, |last| last.saturating_add(1));
    // Lines are numbered without gaps; a damaged one at the end leaves none.
    let gaps = usize::try_from(next.saturating_sub(first))
        .unwrap_or(usize::MAX)
        .saturating_sub(changes.len());
    let mut lost = gaps.max(lines.damaged.saturating_sub(restored));
    if !has_copy && is_there && (lines.is_torn || header.is_none()) {
        lost = lost.max(1);
    }
    if !lines.named.is_empty() {
        damage.push(format!("damaged: {}", lines.named.join(", ")));
    } else if is_there && lines.header.is_none() {
        damage.push("it is empty or cut off".to_owned());
    } else if is_whole && restored + lost > 0 {
        damage.push("lines are missing".to_owned());
    }
    let mut rows = BTreeMap::new();
    for (id, row) in changes.into_values() {
        match row {
            Some(row) => drop(rows.insert(id, row)),
            None => drop(rows.remove(&id)),
        }
    }
    let lost_before = header.map_or(0, |(_, lost)| lost);
    let is_outdated = !damage.is_empty() || !has_copy || lines.is_torn;
    Found {
        rows: rows.into_iter().collect(),
        next,
        damage,
        restored,
        lost,
        lost_before,
        is_outdated,
    }
}
