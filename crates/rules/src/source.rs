//! Finds and reads rule files, overlays (patches of rules) and tests of rules, for the service and for commands.

pub(crate) mod lists;
pub(crate) mod manifest;
pub mod settled_files;
pub mod xds;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::syntax::document::Document;
use crate::syntax::position::Position;
use crate::syntax::problem::{Problem, lines};
use crate::syntax::tree::Node;
use crate::syntax::yaml::{self, Documents};
use weir_common::regular;

/// The first line of [`RuleSet::to_yaml`](crate::RuleSet::to_yaml). All documents of a file that starts with it are read.
pub const YAML_HEADER: &str = "# The active rules of weir: one YAML document for each domain.\n";

/// A rule file: a name and its text, whether it was read from disk or not.
#[derive(Clone, Debug, Hash)]
pub struct RuleFile {
    /// The path, as problems show it.
    pub name: String,
    /// Its YAML.
    pub text: String,
}

impl Document for RuleFile {
    fn name(&self) -> &str {
        &self.name
    }

    /// Parses the first YAML document, and warns about further ones.
    fn tree(&self, warn: &mut dyn FnMut(Problem)) -> Result<Option<Node<'_>>, Problem> {
        let mut documents = Documents::new(&self.text);
        let first = documents.next().unwrap_or(Ok(None));
        let first = first.map_err(|error| yaml::problem(&self.name, &self.text, error))?;
        if let Some(position) = documents.rest() {
            let message = "only the first YAML document of a file is read: what follows is ignored";
            let help = "put each domain into a file of its own; within one, remove the `---`";
            warn(Problem::of_file(&self.name, message, help).at(position).warning());
        }
        Ok(first)
    }

    fn trees(&self, warn: &mut dyn FnMut(Problem)) -> Result<Vec<Option<Node<'_>>>, Problem> {
        if !self.text.starts_with(YAML_HEADER) {
            return self.tree(warn).map(|tree| vec![tree]);
        }
        let trees = Documents::new(&self.text).collect::<Result<Vec<_>, _>>();
        let trees = trees.map_err(|error| yaml::problem(&self.name, &self.text, error))?;
        // There is at least one, if it is empty.
        Ok(if trees.is_empty() { vec![None] } else { trees })
    }

    fn source_text(&self) -> Option<&str> {
        Some(&self.text)
    }
}

/// The largest rule file, or list of values, that is loaded.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

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
}

/// What a directory is searched for. A file that is named itself is read whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Rule files: all but overlays and tests.
    Rules,
    /// `*.overlay.yaml`.
    Overlay,
    /// `*.test.yaml`: tests of rules.
    Test,
}

impl FileKind {
    fn of(path: &Path) -> FileKind {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let ends_with = |ends: [&[u8]; 2]| ends.iter().any(|end| name.ends_with(end));
        match () {
            () if ends_with([b".test.yaml", b".test.yml"]) => FileKind::Test,
            () if ends_with([b".overlay.yaml", b".overlay.yml"]) => FileKind::Overlay,
            () => FileKind::Rules,
        }
    }
}

impl Selection {
    /// Selects a file, or the YAML files of a directory.
    pub fn of(root: impl Into<PathBuf>) -> Selection {
        Selection::of_roots(vec![root.into()])
    }

    /// Selects files, and the YAML files of directories.
    pub fn of_roots(roots: Vec<PathBuf>) -> Selection {
        Selection { roots, prefix: None, yaml_only: true, ignore_dot_files: true }
    }

    /// Reads all rule files, in the order of their paths, each once even if several links lead to it.
    pub fn read(&self) -> (Vec<RuleFile>, Vec<Problem>) {
        self.read_kind(FileKind::Rules)
    }

    /// Reads all files of a kind, as [`read`](Self::read) does rule files.
    pub fn read_kind(&self, kind: FileKind) -> (Vec<RuleFile>, Vec<Problem>) {
        self.read_found(self.find_all(kind))
    }

    /// Finds the files of a kind in all roots.
    pub fn find_all(&self, kind: FileKind) -> FoundFiles {
        let mut found = FoundFiles::default();
        self.roots.iter().for_each(|root| found.add(self.find(root, kind)));
        found
    }

    /// Reads the files that were found.
    pub fn read_found(&self, found: FoundFiles) -> (Vec<RuleFile>, Vec<Problem>) {
        let FoundFiles { files, mut problems, .. } = found;
        let mut read = Vec::new();
        for (path, _) in files {
            let bytes = regular::read(&path, MAX_FILE_BYTES).map(|read| read.bytes);
            match self.rule_file(&path, bytes) {
                Ok(file) => read.push(file),
                Err(problem) => problems.push(problem),
            }
        }
        (read, problems)
    }

    /// Finds the files of a kind in one of the roots.
    pub fn find(&self, root: &Path, kind: FileKind) -> FoundFiles {
        let (seen, found, problems, skipped) = Default::default();
        let mut search = Search { selection: self, kind, root, seen, found, problems, skipped };
        match fs::metadata(root) {
            Ok(meta) if meta.is_dir() => search.directory(root),
            Ok(meta) if meta.is_file() => search.found.push(root.to_owned()),
            Ok(_) => search.problems.push(irregular(root)),
            Err(error) => search.problems.push(unreadable(root, &error)),
        }
        let Search { found, mut problems, skipped, .. } = search;
        if found.is_empty() && problems.is_empty() {
            problems.push(self.nothing_in(root, kind));
        }
        let real = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let files = found.into_iter().map(|path| (path.clone(), real(&path)));
        FoundFiles { files: files.collect(), problems, skipped }
    }

    /// Reports a directory without files of a kind, which would have no effect.
    fn nothing_in(&self, root: &Path, kind: FileKind) -> Problem {
        let help = match (kind, self.yaml_only, &self.prefix) {
            (FileKind::Overlay, ..) => "put an overlay there, named .overlay.yaml".to_owned(),
            (FileKind::Test, ..) => "put a test there, named .test.yaml".to_owned(),
            (_, true, _) => "put a rule file there, named .yaml or .yml".to_owned(),
            (_, _, Some(prefix)) => format!(
                "put a rule file there whose name, or whose directory's name, starts with `{prefix}` \
                 (RUNTIME_APPDIRECTORY)"
            ),
            (_, _, None) => "put a rule file there".to_owned(),
        };
        let message = match kind {
            FileKind::Rules => "no rule files are here",
            FileKind::Overlay => "no overlay files are here",
            FileKind::Test => "no test files are here",
        };
        Problem::of_file(&root.display().to_string(), message, help)
    }

    /// Makes a rule file of what was read.
    ///
    /// # Errors
    /// It could not be read, is too large, or is not UTF-8.
    pub fn rule_file(&self, path: &Path, bytes: io::Result<Vec<u8>>) -> Result<RuleFile, Problem> {
        let bytes = bytes.map_err(|error| unreadable(path, &error))?;
        let text = text_of(path, bytes).map_err(|mut problem| {
            if let Some(line) = problem.position.and_then(Position::line) {
                let message = &problem.message;
                problem.message =
                    format!("error loading config file: yaml: line {line}: {message}");
            }
            problem
        })?;
        Ok(RuleFile { name: path.display().to_string(), text })
    }
}

/// Returns the text of a file. Fails if it has more than [`MAX_FILE_BYTES`], or is not UTF-8; only this error has a
/// position.
pub(super) fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String, Problem> {
    let name = path.display().to_string();
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the file has more than {MAX_FILE_BYTES} bytes");
        return Err(Problem::of_file(&name, message, "split it"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let valid = String::from_utf8_lossy(valid);
        let (mut line, mut column) = (0, 0);
        for text in lines(&valid) {
            (line, column) = (line + 1, text.chars().count() as u32 + 1);
        }
        let problem = Problem::of_file(&name, "the text is not UTF-8", "save the file as UTF-8");
        problem.at(Position::in_text(line, column))
    })
}

/// The files that a search found, each with its path without links, and problems.
#[derive(Clone, Debug, Default)]
pub struct FoundFiles {
    /// Each path as it was found, and without links.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Why others cannot be read.
    pub problems: Vec<Problem>,
    /// Others that are not selected, up to `MAX_SKIPPED` of each root. Tests and hidden files are not among them.
    pub skipped: Vec<PathBuf>,
}

/// The most skipped files of a root that are listed.
const MAX_SKIPPED: usize = 100;

impl FoundFiles {
    /// Adds the files that are not known by another path.
    pub fn add(&mut self, more: FoundFiles) {
        let mut seen: HashSet<PathBuf> = self.files.iter().map(|(_, real)| real.clone()).collect();
        self.files.extend(more.files.into_iter().filter(|(_, real)| seen.insert(real.clone())));
        self.problems.extend(more.problems);
        self.skipped.extend(more.skipped);
    }
}

struct Search<'s> {
    selection: &'s Selection,
    kind: FileKind,
    root: &'s Path,
    /// Each directory is read once, because links may form a cycle.
    seen: HashSet<PathBuf>,
    found: Vec<PathBuf>,
    problems: Vec<Problem>,
    skipped: Vec<PathBuf>,
}

impl Search<'_> {
    fn directory(&mut self, directory: &Path) {
        let Ok(real) = fs::canonicalize(directory) else { return };
        if !self.seen.insert(real) {
            return;
        }
        let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.problems.push(unreadable(directory, &error)),
        };
        let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        // Names with a dot come last, so that a file with two names, as in a mounted ConfigMap, is
        // reported by the visible one.
        paths.sort_by_cached_key(|path| (is_dotted(path), path.clone()));
        for path in paths {
            if self.selection.ignore_dot_files && is_dotted(&path) {
                continue;
            }
            match fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => self.directory(&path),
                Ok(meta) if self.selects(&path) => match meta.is_file() {
                    true => self.found.push(path),
                    false => self.problems.push(irregular(&path)),
                },
                // Tests are meant to be here.
                Ok(_) if FileKind::of(&path) == FileKind::Test => {}
                Ok(_) if self.skipped.len() < MAX_SKIPPED => self.skipped.push(path),
                Ok(_) => {}
                // Some editors keep a dangling link beside each file that is open.
                Err(_) if is_dotted(&path) || !self.selects(&path) => {}
                Err(error) => self.problems.push(unreadable(&path, &error)),
            }
        }
    }

    fn selects(&self, path: &Path) -> bool {
        if FileKind::of(path) != self.kind {
            return false;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        if self.selection.yaml_only && !matches!(extension, Some("yaml" | "yml")) {
            return false;
        }
        self.selection.prefix.as_ref().is_none_or(|prefix| {
            let below = path.strip_prefix(self.root).unwrap_or(path).to_string_lossy();
            below.replace('/', ".").starts_with(prefix)
        })
    }
}

fn is_dotted(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Rejects a pipe or a device before it is opened, because reading it might block.
fn irregular(path: &Path) -> Problem {
    let name = path.display().to_string();
    Problem::of_file(&name, "not a regular file", "name a file or directory of rules")
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let help = "name an existing file or directory that weir may read";
    Problem::of_file(&path.display().to_string(), format!("cannot be read: {error}"), help)
}
