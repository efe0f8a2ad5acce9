//! Rule files as commands take them: files, directories, manifests and standard input.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use weir_rules::source::{MAX_FILE_BYTES, RuleFile, Selection};
use weir_rules::{Lists, Loaded, Options, Overlay, Problem, Problems, RuleSet, SourceFile};

/// Whether a path means standard input.
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
    /// Reads and compiles rule files; none after errors, which are printed.
    pub fn load(&self, paths: &[PathBuf]) -> Option<RuleSet> {
        let loaded = load_default(paths, &self.overlay, self.merge_domains);
        if loaded.is_good() {
            return Some(loaded.rules);
        }
        // Standard error may be closed.
        let _ = io::stderr().write_all(loaded.render_errors().as_bytes());
        None
    }
}

/// As [`load`], with the bounds of commands that have no settings for them.
pub fn load_default(
    paths: &[PathBuf],
    overlays: &[PathBuf],
    merge_domains: bool,
) -> Loaded<SourceFile> {
    let options = Options { merge_domains, lists: Lists::BesideRules, ..Options::default() };
    load(paths, overlays, &options)
}

/// Reads and compiles rule files, also those in Kubernetes manifests, as overlays patch them.
pub fn load(paths: &[PathBuf], overlays: &[PathBuf], options: &Options) -> Loaded<SourceFile> {
    let (open, roots): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().filter(|path| !is_stdin(path)).cloned().partition(|path| is_open(path));
    let selection = Selection::of_roots(roots);
    let overlay = Selection::of_roots(overlays.to_vec());
    let (mut files, mut found) = selection.read();
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
    let files = files.into_iter().flat_map(|file| SourceFile::unpack(file, &mut found)).collect();
    let mut problems = Problems::new(options.max_problems);
    problems.of_files(found);
    match overlay.roots.is_empty() {
        true => Loaded::compile(files, problems, options, None),
        false => {
            let overlay = Overlay::read(&overlay, options);
            Loaded::compile_with(files, problems, overlay, options)
        }
    }
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

/// Reads standard input.
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
