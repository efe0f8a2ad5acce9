//! Reads the rule files that arguments of commands name: files, directories, Kubernetes manifests and standard input.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use weir_rules::source::{FileKind, MAX_FILE_BYTES, RuleFile, Selection};
use weir_rules::{
    Document, Lists, Loaded, Overlay, Problem, Problems, RuleOptions, RuleSet, SourceFile,
};

pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

const STDIN_NAME: &str = "<stdin>";

/// What changes how rule files are read.
#[derive(Debug, Args)]
pub struct RuleFileArgs {
    /// An overlay of the rules, or a directory with files named .overlay.yaml; can be repeated.
    #[arg(long, value_name = "FILE")]
    pub overlay: Vec<PathBuf>,
    /// Let several files add to one domain, as MERGE_DOMAIN_CONFIG does.
    #[arg(long)]
    pub merge_domains: bool,
}

impl RuleFileArgs {
    /// As [`load_default`].
    pub fn load(&self, paths: &[PathBuf]) -> Option<RuleSet> {
        load_default(paths, &self.overlay, self.merge_domains)
    }
}

/// Reads and compiles rule files as [`load`] does, with the bounds of commands that have no settings for them; none
/// after errors, which are printed.
pub fn load_default(
    paths: &[PathBuf],
    overlays: &[PathBuf],
    merge_domains: bool,
) -> Option<RuleSet> {
    let options =
        RuleOptions { merge_domains, lists: Lists::BesideRules, ..RuleOptions::default() };
    let loaded = load(paths, overlays, &options, &Selection::of_roots(Vec::new())).loaded;
    if loaded.is_good() {
        return Some(loaded.rules);
    }
    // Standard error may be closed.
    let _ = io::stderr().write_all(loaded.render_errors().as_bytes());
    None
}

/// Rule files that were compiled, and the files beside them that nothing names.
pub struct LoadedFiles {
    pub loaded: Loaded<SourceFile>,
    /// Files of directories and entries of ConfigMaps that are no rule files; empty after an error.
    pub skipped: Vec<String>,
}

/// Reads and compiles rule files, also those in Kubernetes manifests, as overlays patch them. `selection` decides which
/// files of directories are read.
pub fn load(
    paths: &[PathBuf],
    overlays: &[PathBuf],
    options: &RuleOptions,
    selection: &Selection,
) -> LoadedFiles {
    let (open, roots): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().filter(|path| !is_stdin(path)).cloned().partition(|path| is_open(path));
    let ignore_dot_files = selection.ignore_dot_files;
    let selection = Selection { roots, ..selection.clone() };
    let overlay = Selection { ignore_dot_files, ..Selection::of_roots(overlays.to_vec()) };
    let in_roots = selection.find_all(FileKind::Rules);
    let skipped = in_roots.skipped.clone();
    let (mut files, mut found) = selection.read_found(in_roots);
    let stdin = paths.iter().any(|path| is_stdin(path)).then(read_stdin);
    let open = open.iter().map(|path| {
        let read = File::open(path).and_then(read_all);
        selection.rule_file(path, read)
    });
    for read in stdin.into_iter().chain(open) {
        match read {
            Ok(file) => files.push(file),
            Err(problem) => found.push(problem),
        }
    }
    // Where files of any name are rule files, the service takes a manifest for one, too.
    let unpack = |file: RuleFile| match selection.yaml_only {
        true => SourceFile::unpack(file, &mut found),
        false => vec![file.into()],
    };
    let files = files.into_iter().flat_map(unpack).collect();
    let mut problems = Problems::new(options.max_problems);
    problems.of_files(found);
    let loaded = match overlay.roots.is_empty() {
        true => Loaded::compile(files, problems, options, None),
        false => {
            let overlay = Overlay::read(&overlay, options);
            Loaded::compile_with(files, problems, overlay, options)
        }
    };
    let skipped = unused(skipped, &loaded);
    LoadedFiles { loaded, skipped }
}

/// Returns the skipped files, and entries of ConfigMaps, that are neither lists of rules nor overlays.
fn unused(skipped: Vec<PathBuf>, loaded: &Loaded<SourceFile>) -> Vec<String> {
    // An error may be why a list was not read.
    if !loaded.is_good() {
        return Vec::new();
    }
    let entries = loaded.files.iter().filter_map(Document::lists);
    let entries =
        entries.flat_map(|lists| lists.iter().map(|list| list.path.clone()).collect::<Vec<_>>());
    let names = skipped.iter().map(|path| path.display().to_string());
    let mut names: BTreeSet<String> = names.chain(entries).collect();
    for list in &loaded.lists {
        names.remove(&list.path.display().to_string());
    }
    for file in &loaded.files {
        names.remove(file.name());
    }
    names.into_iter().collect()
}

/// Whether a path is a descriptor that is open already, as that of `<(…)` in a shell: a pipe has a writer then.
fn is_open(path: &Path) -> bool {
    path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd")
}

/// Reads up to one byte beyond [`MAX_FILE_BYTES`], so that a longer text is noticed.
fn read_all(from: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    from.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    Ok(text)
}

pub fn read_stdin() -> Result<RuleFile, Problem> {
    let problem = |message: String, help| Problem::of_file(STDIN_NAME, message, help);
    let text = read_all(io::stdin().lock())
        .map_err(|error| problem(format!("cannot be read: {error}"), "redirect a file to it"))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the text has more than {MAX_FILE_BYTES} bytes");
        return Err(problem(message, "split it"));
    }
    match String::from_utf8(text) {
        Ok(text) => Ok(RuleFile { name: STDIN_NAME.to_owned(), text }),
        Err(_) => Err(problem("the text is not UTF-8".to_owned(), "write it as UTF-8")),
    }
}
