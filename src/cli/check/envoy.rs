//! `weir check --envoy`: compares what Envoy sends with the rules.

mod actions;
mod compare;
mod config;
mod nodes;
mod routes;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::config::{EnvoyConfig, Sent};
use crate::rules::source::RuleFile;
use crate::rules::yaml::{self, SyntaxError};
use crate::rules::{Loaded, Origin, Position, Problem, Problems, Severity, SourceFile};

/// What is found about the configurations, and the rules that they use.
pub(super) struct Findings {
    problems: Problems,
    file: Arc<str>,
}

impl Findings {
    /// Adds a warning about the configuration.
    fn add(&mut self, position: Position, message: String, text: &str, help: &str) {
        let file = self.file.clone();
        self.add_at(&Origin { file, position }, message, text, help);
    }

    /// Adds a warning about any file.
    fn add_at(&mut self, origin: &Origin, message: String, text: &str, help: &str) {
        let problem = Problem {
            severity: Severity::Warning,
            position: Some(origin.position),
            text: text.to_owned(),
            ..Problem::of_file(&origin.file, message, help)
        };
        self.problems.push(problem);
    }
}

/// Compares the configurations with the rules, and adds the findings to their problems. The files are
/// added too, so that findings can show their lines.
pub(super) fn check(loaded: &mut Loaded<SourceFile>, paths: &[PathBuf], max_problems: usize) {
    let mut findings = Findings { problems: Problems::new(max_problems), file: "".into() };
    let mut sent = Vec::new();
    let mut is_complete = true;
    let files: Vec<RuleFile> = paths.iter().filter_map(|path| read(path, &mut findings)).collect();
    is_complete &= files.len() == paths.len();
    let mut roots = Vec::new();
    for file in &files {
        match yaml::parse(&file.text) {
            Ok(root) => roots.push((file, root)),
            Err(SyntaxError { line, column, message }) => {
                is_complete = false;
                let message = format!("the Envoy configuration is not YAML or JSON: {message}");
                let position = Some(Position::in_text(line, column));
                let problem = Problem::of_file(&file.name, message, "fix the syntax here");
                findings.problems.push(Problem { position, ..problem });
            }
        }
    }
    let trees: Vec<_> = roots.iter().filter_map(|(_, root)| root.as_ref()).collect();
    let config = EnvoyConfig::new(&trees);
    for (file, root) in &roots {
        findings.problems.start_file();
        findings.file = file.name.as_str().into();
        let Some(root) = root else { continue };
        is_complete &= config.read(root, &mut findings, &mut sent);
        findings.problems.sort_file();
    }
    findings.problems.start_file();
    compare::compare(&loaded.rules, &sent, is_complete, &mut findings);
    let (problems, omitted) = findings.problems.into_parts();
    loaded.problems.extend(problems);
    loaded.omitted.errors += omitted.errors;
    loaded.omitted.warnings += omitted.warnings;
    loaded.files.extend(files.into_iter().map(SourceFile::from));
}

fn read(path: &Path, findings: &mut Findings) -> Option<RuleFile> {
    let name = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => Some(RuleFile { name, text }),
        Err(error) => {
            let message = format!("cannot be read: {error}");
            let help = "name an Envoy configuration in YAML or JSON";
            findings.problems.push(Problem::of_file(&name, message, help));
            None
        }
    }
}

/// The descriptor that an item of `rate_limits` sends, with its place.
fn describe(sent: &Sent) -> String {
    let entry = |(key, values): &(String, actions::Values)| match values {
        actions::Values::Any => format!("{key}=…"),
        actions::Values::OneOf(values) => format!("{key}={}", values.join("|")),
    };
    sent.entries.iter().map(entry).collect::<Vec<_>>().join(",")
}
