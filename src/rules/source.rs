//! Finds and reads rule files.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::document::Document;
use super::loaded::Loaded;
use super::position::Position;
use super::problem::{Problem, Severity, lines};
use super::tree::Node;
use super::yaml::Documents;
use super::yaml_help;

/// A rule file.
#[derive(Clone, Debug, Hash)]
pub struct RuleFile {
    /// The path, as problems show it.
    pub name: String,
    pub text: String,
}

impl Document for RuleFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn text_bytes(&self) -> usize {
        self.text.len()
    }

    fn tree(&self, warn: &mut dyn FnMut(Problem)) -> Result<Option<Node<'_>>, Problem> {
        first_document(&self.name, &self.text, Documents::new(&self.text), warn)
    }

    fn source_text(&self) -> Option<&str> {
        Some(&self.text)
    }

    fn locate<'l>(_: &'l Loaded, problems: &[&'l Problem]) -> Vec<(String, &'l Problem)> {
        problems.iter().map(|problem| (problem.place(), *problem)).collect()
    }
}

/// Builds the tree of the first document, and warns about further ones.
pub(super) fn first_document<'d>(
    name: &str,
    text: &str,
    mut documents: Documents<'d>,
    warn: &mut dyn FnMut(Problem),
) -> Result<Option<Node<'d>>, Problem> {
    let first = documents.next().unwrap_or(Ok(None));
    let first = first.map_err(|error| yaml_help::problem(name, text, error))?;
    if let Some(position) = documents.rest() {
        let message = "only the first YAML document of a file is read: what follows is ignored";
        let help = "put each domain into a file of its own; within one, remove the `---`";
        let problem = Problem::of_file(name, message, help);
        let severity = Severity::Warning;
        warn(Problem { severity, position: Some(position), ..problem });
    }
    Ok(first)
}

/// Selects the rule files.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Files, and directories that are searched recursively.
    pub roots: Vec<PathBuf>,
    /// Selects only files whose path below the root, with `.` for `/`, starts with this prefix.
    pub prefix: Option<String>,
    /// Selects only `.yaml` and `.yml` files of directories.
    pub yaml_only: bool,
    /// Ignores files and directories whose name starts with a dot.
    pub ignore_dot_files: bool,
    /// The maximum size of a file, in bytes; a larger one is an error.
    pub max_file: u64,
}

impl Selection {
    /// Reads all files, in the order of their paths. A file that is reachable by several links is read
    /// once.
    pub fn read(&self) -> (Vec<RuleFile>, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut found = Vec::new();
        for root in &self.roots {
            match fs::metadata(root) {
                Ok(meta) if meta.is_dir() => {
                    let before = (found.len(), problems.len());
                    self.search(root, root, &mut HashSet::new(), &mut found, &mut problems);
                    if before == (found.len(), problems.len()) {
                        problems.push(self.nothing_in(root));
                    }
                }
                Ok(meta) if meta.is_file() => found.push(root.clone()),
                Ok(_) => problems.push(irregular(root)),
                Err(error) => problems.push(unreadable(root, &error)),
            }
        }
        let mut seen = HashSet::new();
        let mut files = Vec::new();
        for path in found {
            if !fs::canonicalize(&path).map(|real| seen.insert(real)).unwrap_or(true) {
                continue;
            }
            match self.read_file(&path) {
                Ok(file) => files.push(file),
                Err(problem) => problems.push(problem),
            }
        }
        (files, problems)
    }

    /// Reports a directory without rule files, which would limit nothing.
    fn nothing_in(&self, root: &Path) -> Problem {
        let help = match (self.yaml_only, &self.prefix) {
            (true, _) => "put a rule file there, named .yaml or .yml".to_owned(),
            (_, Some(prefix)) => format!(
                "put a rule file there whose name, or whose directory's name, starts with `{prefix}` \
                 (RUNTIME_APPDIRECTORY)"
            ),
            (_, None) => "put a rule file there".to_owned(),
        };
        Problem::of_file(&root.display().to_string(), "no rule files are here", help)
    }

    fn search(
        &self,
        root: &Path,
        directory: &Path,
        seen: &mut HashSet<PathBuf>,
        found: &mut Vec<PathBuf>,
        problems: &mut Vec<Problem>,
    ) {
        // Each directory is read once, because links may form a cycle.
        let Ok(real) = fs::canonicalize(directory) else { return };
        if !seen.insert(real) {
            return;
        }
        let entries =
            match fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
                Ok(entries) => entries,
                Err(error) => {
                    problems.push(unreadable(directory, &error));
                    return;
                }
            };
        let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        // Names with a dot come last, so that a file with two names, as in a mounted ConfigMap, is
        // reported by the visible one.
        paths.sort_by_cached_key(|path| (is_dotted(path), path.clone()));
        for path in paths {
            if self.ignore_dot_files && is_dotted(&path) {
                continue;
            }
            match fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => self.search(root, &path, seen, found, problems),
                Ok(meta) if self.selects(root, &path) => match meta.is_file() {
                    true => found.push(path),
                    false => problems.push(irregular(&path)),
                },
                Ok(_) => {}
                // Some editors keep a dangling link beside each file that is open.
                Err(_) if is_dotted(&path) || !self.selects(root, &path) => {}
                Err(error) => problems.push(unreadable(&path, &error)),
            }
        }
    }

    fn selects(&self, root: &Path, path: &Path) -> bool {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if self.yaml_only && !matches!(extension, Some("yaml" | "yml")) {
            return false;
        }
        self.prefix.as_ref().is_none_or(|prefix| {
            let below = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
            below.replace('/', ".").starts_with(prefix)
        })
    }

    fn read_file(&self, path: &Path) -> Result<RuleFile, Problem> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let limit = self.max_file.saturating_add(1);
        fs::File::open(path)
            .and_then(|file| file.take(limit).read_to_end(&mut bytes))
            .map_err(|error| unreadable(path, &error))?;
        if bytes.len() as u64 > self.max_file {
            let message = format!("the file has more than {} bytes", self.max_file);
            let help = "split it, or raise the setting rules.max_file";
            return Err(Problem::of_file(&name, message, help));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(RuleFile { name, text }),
            Err(error) => {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let valid = String::from_utf8_lossy(valid);
                let (mut line, mut column) = (0, 0);
                for text in lines(&valid) {
                    (line, column) = (line + 1, text.chars().count() as u32 + 1);
                }
                let mut problem = Problem::of_file(
                    &name,
                    format!("error loading config file: yaml: line {line}: the text is not UTF-8"),
                    "save the file as UTF-8",
                );
                problem.position = Some(Position::in_text(line, column));
                Err(problem)
            }
        }
    }
}

fn is_dotted(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Refuses a pipe or a device before it is opened, because reading it might block.
fn irregular(path: &Path) -> Problem {
    let name = path.display().to_string();
    Problem::of_file(&name, "not a regular file", "name a file or directory of rules")
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let message = format!("cannot be read: {error}");
    Problem::of_file(
        &path.display().to_string(),
        message,
        "name an existing file or directory that weir may read",
    )
}
