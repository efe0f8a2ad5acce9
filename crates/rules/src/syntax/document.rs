//! The trait of rule files and xDS resources, by which both are read alike. Also shows problems with their lines.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::problem::{self, Problem};
use super::tree::Node;

/// A file or a resource with the rules of one domain.
pub trait Document: Sized {
    /// The name in errors and warnings.
    fn name(&self) -> &str;

    /// The length of its text, or of a YAML text with the same content. It bounds the memory for its rules.
    fn text_bytes(&self) -> usize {
        self.source_text().map_or(0, str::len)
    }

    /// Builds its tree; none for an empty document. `warn` is called with warnings about its form.
    ///
    /// # Errors
    /// The document cannot be read.
    fn tree(&self, warn: &mut dyn FnMut(Problem)) -> Result<Option<Node<'_>>, Problem>;

    /// Builds the trees of all YAML documents that are read: only the first, except in a file that weir wrote.
    ///
    /// # Errors
    /// A document cannot be read.
    fn trees(&self, warn: &mut dyn FnMut(Problem)) -> Result<Vec<Option<Node<'_>>>, Problem> {
        self.tree(warn).map(|tree| vec![tree])
    }

    /// Returns whether descriptors of one level with the same key and value are merged; otherwise they are errors.
    fn merges_siblings(&self) -> bool {
        false
    }

    /// The lists of values beside it, if it is in a Kubernetes manifest; none if they are files.
    fn lists(&self) -> Option<Arc<[EmbeddedList]>> {
        None
    }

    /// The text that positions refer to, if they are lines and columns.
    fn source_text(&self) -> Option<&str>;

    /// Returns listed problems, each with `file:line:column`, or the resource and the path of the field.
    fn locate<'l>(_: &'l [Self], problems: &[&'l Problem]) -> Vec<(String, &'l Problem)> {
        problems.iter().map(|problem| (problem.place(), *problem)).collect()
    }

    /// Renders problems in full, each with what it is about.
    fn render(files: &[Self], problems: &[&Problem]) -> String {
        render(files, problems)
    }
}

/// A list of values in a manifest: an entry of the ConfigMap of a rule file, which names it.
#[derive(Clone, Debug)]
pub struct EmbeddedList {
    pub(crate) name: String,
    /// The name in problems.
    pub path: String,
    pub(crate) text: String,
}

/// Renders problems with files in full, each with the line that it is in.
pub(crate) fn render(files: &[impl Document], problems: &[&Problem]) -> String {
    let lines = lines(files, problems);
    let mut out = String::new();
    for problem in problems {
        let line = problem.position.and_then(|position| {
            lines.get(&(problem.file.as_str(), position.line()?)).copied().flatten()
        });
        out += &problem.render(line);
        out.push('\n');
    }
    out
}

/// Finds the lines that problems are in, by file and number, in one pass through each file: files may be large.
fn lines<'l>(
    files: &'l [impl Document],
    problems: &[&'l Problem],
) -> BTreeMap<(&'l str, u32), Option<&'l str>> {
    let key = |problem: &&'l Problem| Some((problem.file.as_str(), problem.position?.line()?));
    let mut found: BTreeMap<(&str, u32), Option<&str>> =
        problems.iter().filter_map(key).map(|key| (key, None)).collect();
    // ConfigMaps of one name may have entries of one name.
    let mut seen = HashSet::new();
    for file in files {
        let name = file.name();
        let Some(text) = file.source_text().filter(|_| seen.insert(name)) else { continue };
        let Some((&(_, last), _)) = found.range((name, 0)..=(name, u32::MAX)).next_back() else {
            continue;
        };
        for (number, line) in (1..=last).zip(problem::lines(text)) {
            if let Some(wanted) = found.get_mut(&(name, number)) {
                wanted.get_or_insert(line);
            }
        }
    }
    found
}
