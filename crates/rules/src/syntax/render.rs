//! Renders problems with the lines that they are in.

use std::collections::{BTreeMap, HashSet};

use super::document::Document;
use super::problem;
use super::problem::Problem;

/// Renders problems with files in full, each with the line that it is in.
pub(crate) fn render<'p>(
    files: &[impl Document],
    problems: impl Iterator<Item = &'p Problem>,
) -> String {
    let problems: Vec<&Problem> = problems.collect();
    let lines = lines(files, &problems);
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

/// Finds the lines that problems are in, by file and number, in one pass through each file: files may
/// be large.
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
