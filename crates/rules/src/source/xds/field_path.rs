//! Shows where xDS resources have problems, by the paths of fields: `descriptors[1].rate_limit.unit (user=ann)`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::syntax::document::Document;
use crate::syntax::position::Position;
use crate::syntax::problem::Problem;
use crate::syntax::tree::{Content, Node};
use weir_common::truncate::truncated;

/// The maximum length of a descriptor's key and value in a path.
const MAX_NAME_BYTES: usize = 100;

/// The paths of fields with problems, by resource and position; none until found.
type Paths<'f> = BTreeMap<(&'f str, Position), Option<String>>;

pub(super) fn render(files: &[impl Document], problems: &[&Problem]) -> String {
    let paths = find(files, problems);
    let mut out = String::new();
    for problem in problems {
        let Problem { file, message, help, .. } = problem;
        let severity = problem.severity.name();
        // A line is one of a list. Writing to a string cannot fail.
        let _ = writeln!(out, "{}: {severity}: {message}", problem.place());
        if let Some(path) = problem.position.and_then(|position| path(&paths, file, position)) {
            let _ = writeln!(out, "  at: {path}");
        }
        if let Some(first) = &problem.first {
            let path = path(&paths, &first.file, first.position).unwrap_or_default();
            let _ = writeln!(out, "  note: the first is at {}: {path}", first.file);
        }
        let _ = writeln!(out, "  help: {help}");
    }
    out
}

pub(crate) fn locate<'l>(
    files: &'l [impl Document],
    problems: &[&'l Problem],
) -> Vec<(String, &'l Problem)> {
    let paths = find(files, problems);
    let place = |problem: &Problem| {
        let path = problem.position.and_then(|position| path(&paths, &problem.file, position));
        path.map_or_else(|| problem.place(), |path| format!("{}: {path}", problem.file))
    };
    problems.iter().map(|problem| (place(problem), *problem)).collect()
}

fn path<'p>(paths: &'p Paths<'p>, file: &'p str, position: Position) -> Option<&'p str> {
    paths.get(&(file, position))?.as_deref()
}

/// Finds the paths of all fields that problems refer to. The trees of their resources are built
/// again: to keep the path of each node would take more memory than everything else.
fn find<'l>(files: &'l [impl Document], problems: &[&'l Problem]) -> Paths<'l> {
    let mut paths = Paths::new();
    for problem in problems {
        if let Some(position) = problem.position {
            paths.insert((&problem.file, position), None);
        }
        if let Some(first) = &problem.first {
            paths.insert((&first.file, first.position), None);
        }
    }
    for resource in files {
        let name = resource.name();
        let of_resource = (name, Position::Field(0))..=(name, Position::Field(u32::MAX));
        if paths.range(of_resource).any(|(_, path)| path.is_none())
            && let Ok(Some(root)) = resource.tree(&mut |_| {})
        {
            let mut walk = PathWalk { resource: name, paths: &mut paths, names: Vec::new() };
            walk.map(&root, &mut String::new());
        }
    }
    paths
}

struct PathWalk<'w, 'f> {
    resource: &'f str,
    paths: &'w mut Paths<'f>,
    /// The names of the enclosing descriptors.
    names: Vec<String>,
}

impl PathWalk<'_, '_> {
    fn map(&mut self, node: &Node<'_>, path: &mut String) {
        let Content::Map(entries) = node.content() else { return };
        let length = path.len();
        for (key, value) in entries {
            let dot = if path.is_empty() { "" } else { "." };
            *path += dot;
            *path += key.text().unwrap_or_default();
            self.record(key.position, path);
            match value.content() {
                Content::List(items) => self.list(items, path),
                _ => self.map(value, path),
            }
            path.truncate(length);
        }
    }

    fn list(&mut self, items: &[Node<'_>], path: &mut String) {
        let length = path.len();
        for (i, item) in items.iter().enumerate() {
            // The search of the last item may include the fields after it, without effect.
            let end = items.get(i + 1).map_or(Position::Field(u32::MAX), |next| next.position);
            let of_item = (self.resource, item.position)..(self.resource, end);
            if self.paths.range(of_item).next().is_none() {
                continue;
            }
            let _ = write!(path, "[{i}]");
            self.names.push(name(item));
            self.record(item.position, path);
            self.map(item, path);
            self.names.pop();
            path.truncate(length);
        }
    }

    fn record(&mut self, position: Position, path: &str) {
        let Some(found @ None) = self.paths.get_mut(&(self.resource, position)) else { return };
        let names = self.names.iter().map(String::as_str).filter(|name| !name.is_empty());
        let names: Vec<&str> = names.collect();
        *found = Some(match names.is_empty() {
            true => path.to_owned(),
            false => format!("{path} ({})", names.join(" > ")),
        });
    }
}

/// `key=value` of a descriptor; empty for other items.
fn name(item: &Node<'_>) -> String {
    let text = |key| item.get(key).and_then(Node::text).unwrap_or_default();
    let (key, value) = (text("key"), text("value"));
    let equals = if value.is_empty() { "" } else { "=" };
    truncated(format!("{key}{equals}{value}").escape_debug().to_string(), MAX_NAME_BYTES)
}
