//! `weir check --envoy`: compares what Envoy sends with the rules.

mod actions;
mod compare;
mod config;
mod filter;
mod nodes;
mod routes;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::filter::{EnvoyConfig, Sent};
use self::nodes::{get, has_type, walk};
use weir_rules::source::RuleFile;
use weir_rules::tree::Node;
use weir_rules::yaml::{self, SyntaxError};
use weir_rules::{Loaded, Origin, Position, Problem, Problems, Severity, SourceFile};

/// The most work of a comparison, in rules that an entry is compared with: some seconds. Filters, routes,
/// `rate_limits` and rules multiply.
const MAX_EFFORT: usize = 1 << 28;

/// What is found about the configurations, and the rules that they use.
pub(super) struct Findings {
    problems: Problems,
    file: Arc<str>,
    /// The work that may still be done; none after more was needed.
    effort: Option<usize>,
}

impl Findings {
    /// Adds a warning about the configuration.
    fn add(&mut self, position: Position, message: String, text: &str, help: &str) {
        let file = self.file.clone();
        self.add_at(&Origin { file, position }, message, text, help);
    }

    /// Counts work before it is done. Reports when it is too much, after which nothing may be done.
    fn spend(&mut self, position: Position, effort: usize) -> bool {
        let Some(left) = self.effort else { return false };
        self.effort = left.checked_sub(effort);
        if self.effort.is_none() {
            let message = "the comparison with the rules takes too long, and was stopped here";
            let help = "compare fewer listeners or rules at once, with a command for each part";
            let problem = Problem::of_file(&self.file, message, help);
            // It fits in, whatever else was found.
            self.problems.start_file();
            self.problems.push(Problem { position: Some(position), ..problem });
        }
        self.effort.is_some()
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
pub(super) fn check(
    loaded: &mut Loaded<SourceFile>,
    paths: &[PathBuf],
    max_file: u64,
    max_problems: usize,
) {
    let (problems, file) = (Problems::new(max_problems), "".into());
    let findings = Findings { problems, file, effort: Some(MAX_EFFORT) };
    check_into(findings, loaded, paths, max_file);
}

fn check_into(
    mut findings: Findings,
    loaded: &mut Loaded<SourceFile>,
    paths: &[PathBuf],
    max_file: u64,
) {
    let mut sent = Vec::new();
    let mut is_complete = true;
    let files: Vec<RuleFile> =
        paths.iter().filter_map(|path| read(path, max_file, &mut findings)).collect();
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
        let Some(root) = root.as_ref().filter(|root| has_config(root)) else {
            is_complete = false;
            let problem = not_a_configuration(&file.name, root.as_ref());
            let position = Some(Position::in_text(1, 1));
            findings.problems.push(Problem { position, ..problem });
            continue;
        };
        is_complete &= config.read(root, &mut findings, &mut sent);
        if findings.effort.is_none() {
            break;
        }
        findings.problems.sort_file();
    }
    findings.problems.start_file();
    if findings.effort.is_some() {
        compare::compare(&loaded.rules, &sent, is_complete, &mut findings);
    }
    let (problems, omitted) = findings.problems.into_parts();
    loaded.problems.extend(problems);
    loaded.omitted.errors += omitted.errors;
    loaded.omitted.warnings += omitted.warnings;
    loaded.files.extend(files.into_iter().map(SourceFile::from));
}

/// Whether any of it is a listener, a route, a cluster or a layer of the runtime.
fn has_config(root: &Node<'_>) -> bool {
    const FIELDS: [&str; 7] = [
        "http_filters",
        "virtual_hosts",
        "filter_chains",
        "listeners",
        "static_layer",
        "clusters",
        "load_assignment",
    ];
    let mut found = false;
    walk(root, &mut |node| {
        found |= FIELDS.iter().any(|name| get(node, name).is_some());
        found |= has_type(node, "config.cluster.v3.Cluster");
    });
    found
}

/// The error of a file that is no configuration of Envoy.
fn not_a_configuration(file: &str, root: Option<&Node<'_>>) -> Problem {
    let has = |field| root.is_some_and(|root| get(root, field).is_some());
    match has("domain") && has("descriptors") {
        true => {
            let help = "write it before --envoy, and an Envoy configuration after it";
            Problem::of_file(file, "this is a rule file, not an Envoy configuration", help)
        }
        false => {
            let message = "there is no listener, route or cluster in this file";
            Problem::of_file(file, message, "name an Envoy configuration in YAML or JSON")
        }
    }
}

/// Reads a file, or a pipe of a shell.
fn read(path: &Path, max_file: u64, findings: &mut Findings) -> Option<RuleFile> {
    let name = path.display().to_string();
    match File::open(path).and_then(|file| read_text(file, max_file)) {
        Ok(text) => Some(RuleFile { name, text }),
        Err(error) => {
            let message = format!("cannot be read: {error}");
            let help = "name an Envoy configuration in YAML or JSON";
            findings.problems.push(Problem::of_file(&name, message, help));
            None
        }
    }
}

fn read_text(file: File, max_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    let length = file.take(max_bytes.saturating_add(1)).read_to_string(&mut text)?;
    if length as u64 > max_bytes {
        return Err(io::Error::other(format!("it has more than {max_bytes} bytes")));
    }
    Ok(text)
}

/// The descriptor that an item of `rate_limits` sends, with its place.
fn describe(sent: &Sent) -> String {
    let entry = |(key, values): &(String, actions::Values)| match values {
        actions::Values::Any => format!("{key}=…"),
        actions::Values::OneOf(values) => format!("{key}={}", values.join("|")),
    };
    sent.entries.iter().map(entry).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_rules::{DEFAULT_MAX_PROBLEMS, Options};

    /// The problems of 30 filters and 30 routes, with 30 rules, within this effort.
    fn problems(effort: usize) -> Vec<String> {
        let mut rules = "domain: d\ndescriptors:\n".to_owned();
        let mut envoy = "listeners:\n- http_filters:\n".to_owned();
        for i in 0..30 {
            rules += &format!("- {{key: a, value: v{i}, rate_limit: {{unit: day}}}}\n");
            envoy += &format!(
                "  - {{name: f{i}, typed_config: {{'@type': x.filters.http.ratelimit.v3.RateLimit, \
                 domain: d}}}}\n"
            );
        }
        envoy += "  route_config:\n    virtual_hosts:\n    - routes:\n";
        let actions = "[{actions: [{request_headers: {descriptor_key: a}}]}]";
        let route = format!("      - route: {{cluster: c, rate_limits: {actions}}}\n");
        envoy += &route.repeat(30);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("envoy.yaml");
        std::fs::write(&path, envoy).unwrap();
        let file = RuleFile { name: "rules.yaml".into(), text: rules };
        let none = Problems::new(DEFAULT_MAX_PROBLEMS);
        let mut loaded = Loaded::compile(vec![file.into()], none, &Options::default(), None);
        let problems = Problems::new(DEFAULT_MAX_PROBLEMS);
        let findings = Findings { problems, file: "".into(), effort: Some(effort) };
        check_into(findings, &mut loaded, &[path], 1 << 20);
        let shown = |problem: &Problem| {
            assert!(problem.is_error() && problem.position.is_some(), "{problem}");
            assert!(problem.help.contains("fewer"), "{problem}");
            problem.message.clone()
        };
        loaded.problems.iter().map(shown).collect()
    }

    #[test]
    fn a_comparison_that_takes_too_long_is_an_error() {
        let error = "the comparison with the rules takes too long, and was stopped here";
        assert_eq!(problems(MAX_EFFORT), [""; 0]);
        // On the first route; among the filters of it; among those of a later one.
        for effort in [10, 1_000, 100_000] {
            assert_eq!(problems(effort), [error], "{effort}");
        }
    }
}
