//! Errors of resources, each with the field of the message that it is about: the sender has not
//! seen the YAML that was made of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::rules::problem::truncate;
use crate::rules::yaml::{self, Kind, Node, Place};
use crate::rules::{Loaded, Omitted, Problem};

/// Bytes shown of a descriptor's key and value.
const MAX_NAME_BYTES: usize = 100;

/// Paths by resource and place; none until they are found.
type Paths<'f> = BTreeMap<(&'f str, Place), Option<String>>;

/// All errors that are listed, each with the resource, the field and what to send instead, and how
/// many are not listed.
pub fn render_errors(loaded: &Loaded) -> String {
    let errors = || loaded.problems.iter().filter(|problem| problem.is_error());
    let paths = find(loaded, errors());
    let mut out = String::new();
    for problem @ Problem { file, message, help, .. } in errors() {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{file}: error: {message}");
        if let Some(path) = problem.place.and_then(|place| path(&paths, file, place)) {
            let _ = writeln!(out, "  at: {path}");
        }
        if let Some(first) = &problem.first {
            let path = path(&paths, &first.file, first.place).unwrap_or_default();
            let _ = writeln!(out, "  note: the first is at {}: {path}", first.file);
        }
        let _ = writeln!(out, "  help: {help}");
    }
    if let Some(summary) = (Omitted { warnings: 0, ..loaded.omitted }).summary() {
        let _ = writeln!(out, "{summary}");
    }
    out
}

fn path<'p>(paths: &'p Paths<'p>, file: &'p str, place: Place) -> Option<&'p str> {
    paths.get(&(file, place))?.as_deref()
}

/// Finds the fields that errors are about.
fn find<'l>(loaded: &'l Loaded, errors: impl Iterator<Item = &'l Problem>) -> Paths<'l> {
    let mut paths = Paths::new();
    for problem in errors {
        if let Some(place) = problem.place {
            paths.insert((&problem.file, place), None);
        }
        if let Some(first) = &problem.first {
            paths.insert((&first.file, first.place), None);
        }
    }
    for file in &loaded.files {
        let of_file = (file.name.as_str(), Place::default())..=(file.name.as_str(), Place::MAX);
        if paths.range(of_file).any(|(_, path)| path.is_none())
            && let Ok(Some(root)) = yaml::parse(&file.text)
        {
            let mut walk = Walk { file: &file.name, paths: &mut paths, names: Vec::new() };
            walk.map(&root, &mut String::new());
        }
    }
    paths
}

struct Walk<'w, 'f> {
    file: &'f str,
    paths: &'w mut Paths<'f>,
    /// Of the descriptors that the walk is in.
    names: Vec<String>,
}

impl Walk<'_, '_> {
    fn map(&mut self, node: &Node<'_>, path: &mut String) {
        let Kind::Map(entries) = node.kind() else { return };
        let length = path.len();
        for (key, value) in entries {
            let dot = if path.is_empty() { "" } else { "." };
            *path += dot;
            *path += key.text().unwrap_or_default();
            self.note(key.place, path);
            self.note(value.place, path);
            match value.kind() {
                Kind::List(items) => self.list(items, path),
                _ => self.map(value, path),
            }
            path.truncate(length);
        }
    }

    fn list(&mut self, items: &[Node<'_>], path: &mut String) {
        let length = path.len();
        for (i, item) in items.iter().enumerate() {
            // What follows the last item belongs to no item, and is passed here in vain.
            let end = items.get(i + 1).map_or(Place::MAX, |next| next.place);
            if self.paths.range((self.file, item.place)..(self.file, end)).next().is_none() {
                continue;
            }
            let _ = write!(path, "[{i}]");
            self.names.push(name(item));
            self.note(item.place, path);
            self.map(item, path);
            self.names.pop();
            path.truncate(length);
        }
    }

    fn note(&mut self, place: Place, path: &str) {
        let Some(found @ None) = self.paths.get_mut(&(self.file, place)) else { return };
        let names: Vec<&str> =
            self.names.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        *found = Some(match names.is_empty() {
            true => path.to_owned(),
            false => format!("{path} ({})", names.join(" > ")),
        });
    }
}

/// `key=value` of a descriptor; empty for what is none.
fn name(item: &Node<'_>) -> String {
    let Kind::Map(entries) = item.kind() else { return String::new() };
    let text = |wanted| {
        let entry = entries.iter().find(|(key, _)| key.text() == Some(wanted));
        entry.and_then(|(_, value)| value.text()).unwrap_or_default()
    };
    let (key, value) = (text("key"), text("value"));
    let equals = if value.is_empty() { "" } else { "=" };
    let mut name = format!("{key}{equals}{value}").escape_debug().to_string();
    truncate(&mut name, MAX_NAME_BYTES);
    name
}
