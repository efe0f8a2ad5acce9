//! `weir diff`: compares rule files with the active rules of a running weir, or with other rule files.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::api_client::{ApiClient, ClientError, ServerArgs};
use super::print::{Output, counted, finish};
use super::rule_files::RuleFileArgs;
use crate::print::{self, USAGE};
use weir_rules::source::RuleFile;
use weir_rules::{Difference, Lists, RuleOptions, RuleSet, YAML_HEADER, compare};

const EXAMPLES: &str = "\
Examples:
  weir diff rules/
  weir diff --server http://127.0.0.1:6070 --overlay limits.overlay.yaml rules/
  weir diff old/ -- new/
  weir diff --output json saved.yaml -- rules/

Without `--`, the old rules are the active ones of a running weir, as its overlay has patched them. With it, the overlay
patches both sets. Places in files, comments and the order of descriptors make no difference; the order of wildcards does.

Exits 0 if the rules are equal, 1 if they differ, 2 if a file has an error or weir does not answer.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "weir diff [OPTIONS] <PATH>...\n       \
                            weir diff [OPTIONS] <OLD>... -- <NEW>...")]
pub struct DiffArgs {
    /// Rule files, directories of them, or Kubernetes manifests; `-` for standard input.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The new rules, if those before `--` are the old ones.
    #[arg(last = true, value_name = "NEW", conflicts_with = "server")]
    new: Vec<PathBuf>,
    #[command(flatten)]
    rule_files: RuleFileArgs,
    /// Format of the differences.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

const DIFFERENT: u8 = 1;
const UNREADABLE: u8 = USAGE;

pub fn run(args: &DiffArgs) -> ExitCode {
    let read = |paths: &[PathBuf]| args.rule_files.load(paths);
    let sets = match args.new.is_empty() {
        true => read(&args.paths).and_then(|new| Some((active(args)?, new))),
        false => read(&args.paths).and_then(|old| Some((old, read(&args.new)?))),
    };
    let Some((old, new)) = sets else { return ExitCode::from(UNREADABLE) };
    let difference = compare(&old, &new);
    let mut out = io::stdout().lock();
    let printed = match args.output {
        Output::Text => print_text(&difference, &new, &mut out),
        Output::Json => serde_json::to_value(&difference)
            .map_err(io::Error::from)
            .and_then(|json| print::json(&json, &mut out)),
    };
    let code = if difference.is_empty() { 0 } else { DIFFERENT };
    finish(printed, ExitCode::from(code))
}

/// Reads the active rules of a running weir; none after an error, which is printed.
fn active(args: &DiffArgs) -> Option<RuleSet> {
    let rules = ApiClient::new(&args.server).and_then(|client| {
        let text = client.get_text("/v1/rules?format=yaml")?;
        compile(text).ok_or_else(|| client.is_not_weir(""))?
    });
    rules.map_err(|error| error.report()).ok()
}

/// Compiles the active rules; none if the text is something else.
fn compile(text: String) -> Option<Result<RuleSet, ClientError>> {
    if text == YAML_HEADER {
        return Some(Ok(RuleSet::default()));
    }
    let is_saved = text.starts_with(YAML_HEADER);
    let file = is_saved.then(|| RuleFile { name: "<active rules>".to_owned(), text })?;
    // The server has checked them, maybe with higher limits.
    let options =
        RuleOptions { max_log_bytes: u64::MAX, lists: Lists::Unread, ..RuleOptions::default() };
    let (rules, problems) = RuleSet::compile(&[file], &options, None);
    Some(match problems.iter().find(|problem| problem.is_error()) {
        None => Ok(rules),
        Some(problem) => Err(ClientError::Connection(format!(
            "the rules of the server cannot be read: {problem}; use the weir of its version"
        ))),
    })
}

fn print_text(difference: &Difference<'_>, new: &RuleSet, out: &mut dyn Write) -> io::Result<()> {
    let Difference { added, removed, changed } = difference;
    for change in changed {
        print::line(out, &change.to_string())?;
    }
    for (rules, what) in [(removed, "removed"), (added, "added")] {
        for rule in rules {
            let limits = rule.limits.as_ref().map(|limits| format!(": {limits}"));
            print::line(out, &format!("{rule} {what}{}", limits.unwrap_or_default()))?;
        }
    }
    let counts = [(changed.len(), "changed"), (removed.len(), "removed"), (added.len(), "added")];
    let counts: Vec<String> =
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    match counts.is_empty() {
        true => print::line(out, &format!("equal: {}", counted(new.rules().count(), "rule"))),
        false => print::line(out, &counts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> RuleSet {
        compile(format!("{YAML_HEADER}---\ndomain: shop\n{text}")).unwrap().unwrap()
    }

    fn printed(old: &str, new: &str) -> String {
        let (old, new) = (rules(old), rules(new));
        let mut out = Vec::new();
        print_text(&compare(&old, &new), &new, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn differences_are_printed_a_line_each() {
        let old = "descriptors:\n- { key: user, rate_limit: { unit: minute, requests_per_unit: 60 } }\n\
                   - { key: \"a\\e\", rate_limit: { unit: day } }\n";
        let new = "descriptors:\n- { key: user, rate_limit: { unit: minute, requests_per_unit: 90 } }\n\
                   - { key: none }\n";
        assert_eq!(
            printed(old, new),
            "shop.user: 60 per minute → 90 per minute\nshop.a\\u001b removed: 0 per day\n\
             shop.none added\n1 changed, 1 removed, 1 added\n"
        );
        assert_eq!(printed(old, old), "equal: 2 rules\n");
    }

    #[test]
    fn what_is_not_the_api_is_not_read() {
        assert!(compile("/livez: ok\n".to_owned()).is_none());
        let Some(Err(ClientError::Connection(error))) =
            compile(format!("{YAML_HEADER}---\ndomain: shop\nnew_key: 1\n"))
        else {
            panic!("it is newer")
        };
        assert!(error.ends_with("use the weir of its version"), "{error}");
    }
}
