//! Rule files as commands take them: files, directories, manifests and standard input.

use std::io::{self, Read};
use std::path::PathBuf;

use crate::rules::source::{RuleFile, Selection};
use crate::rules::{Loaded, Options, Overlay, Problem, Problems, SourceFile};

/// The path that means standard input.
const STDIN: &str = "-";

/// The name of standard input in problems.
const STDIN_NAME: &str = "<stdin>";

/// Reads and compiles rule files, also those in Kubernetes manifests, as overlays patch them.
pub fn load(
    paths: &[PathBuf],
    overlays: &[PathBuf],
    max_file: u64,
    options: &Options,
) -> Loaded<SourceFile> {
    let is_stdin = |path: &&PathBuf| path.as_os_str() == STDIN;
    let roots: Vec<PathBuf> = paths.iter().filter(|path| !is_stdin(path)).cloned().collect();
    let selection =
        Selection { roots, prefix: None, yaml_only: true, ignore_dot_files: true, max_file };
    let overlay = Selection { roots: overlays.to_vec(), ..selection.clone() };
    let (mut files, mut found) = selection.read();
    if paths.iter().any(|path| is_stdin(&path)) {
        match read_stdin(max_file) {
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
            Loaded::compile_with(files, problems, overlay, options, None)
        }
    }
}

fn read_stdin(max_bytes: u64) -> Result<RuleFile, Problem> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(max_bytes.saturating_add(1)).read_to_end(&mut text);
    let problem = |message: String, help| Problem::of_file(STDIN_NAME, message, help);
    if let Err(error) = read {
        return Err(problem(format!("cannot be read: {error}"), "redirect a file to it"));
    }
    if text.len() as u64 > max_bytes {
        let message = format!("the text has more than {max_bytes} bytes");
        return Err(problem(message, "split it, or raise --max-file"));
    }
    match String::from_utf8(text) {
        Ok(text) => Ok(RuleFile { name: STDIN_NAME.to_owned(), text }),
        Err(_) => Err(problem("the text is not UTF-8".to_owned(), "write it as UTF-8")),
    }
}
