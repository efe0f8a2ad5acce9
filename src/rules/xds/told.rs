//! Problems of resources, told by where they are in the message: whoever sent it has not seen the
//! YAML that was made of it.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use crate::rules::{Loaded, Problem};

/// All errors, each with the resource, what is wrong, in which field, and what to send instead.
pub fn render_errors(loaded: &Loaded) -> String {
    let errors = || loaded.problems.iter().filter(|problem| problem.is_error());
    let mut places: HashMap<(&str, u32), Option<String>> = errors()
        .filter_map(|problem| Some(((problem.file.as_str(), problem.place?.line), None)))
        .collect();
    let bad: HashSet<&str> = errors().map(|problem| problem.file.as_str()).collect();
    for file in &loaded.files {
        if bad.contains(file.name.as_str()) {
            fill_in(&file.name, &file.text, &mut places);
        }
    }
    let mut out = String::new();
    for Problem { file, place, message, help, .. } in errors() {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{file}: error: {message}");
        let known = place.and_then(|place| places.get(&(file.as_str(), place.line))?.as_ref());
        if let Some(place) = known {
            let _ = writeln!(out, "  at: {place}");
        }
        let _ = writeln!(out, "  help: {help}");
    }
    out
}

/// A key that the present line is below, or has.
struct Level<'t> {
    depth: usize,
    key: &'t str,
    /// How many items of its list there have been; 0 where it is none.
    items: usize,
    /// The descriptor that the present item is: its key and value.
    name: String,
}

/// Finds what the lines of one file are in the message, in one way through it.
fn fill_in<'f>(name: &'f str, text: &'f str, places: &mut HashMap<(&'f str, u32), Option<String>>) {
    let mut above: Vec<Level<'_>> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.trim_start_matches(' ');
        let (item, content) = match content.strip_prefix("- ") {
            Some(content) => (true, content),
            None => (false, content),
        };
        let depth = (line.len() - line.trim_start_matches(' ').len()) / 2 + usize::from(item);
        let (key, value) = content.split_once(':').unwrap_or((content, ""));
        while above.last().is_some_and(|level| level.depth >= depth) {
            above.pop();
        }
        if let Some(list) = above.last_mut() {
            if item {
                list.items += 1;
                list.name.clear();
            }
            // Quoted as it was made; what is escaped stays so.
            let value = value.trim();
            let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
            match key {
                "key" => list.name = value.to_owned(),
                "value" => list.name += &format!("={value}"),
                _ => {}
            }
        }
        above.push(Level { depth, key, items: 0, name: String::new() });
        if let Some(place) = places.get_mut(&(name, number)) {
            *place = Some(path(&above));
        }
    }
}

/// `descriptors[3].rate_limit.unit (user=ann)`
fn path(levels: &[Level<'_>]) -> String {
    let steps = levels.iter().map(|level| match level.items {
        0 => level.key.to_owned(),
        items => format!("{}[{}]", level.key, items - 1),
    });
    let path = steps.collect::<Vec<_>>().join(".");
    let names = levels.iter().map(|level| level.name.as_str()).filter(|name| !name.is_empty());
    let names = names.collect::<Vec<_>>().join(" > ");
    if names.is_empty() { path } else { format!("{path} ({names})") }
}
