//! `weir check`: reports the problems of rule files, and prints their rules.

mod envoy;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::print::{self, Output, USAGE, counted, finish, on_stderr, shortened};
use super::rule_files::{self, LoadedFiles, RuleFileArgs, is_stdin};
use weir_common::escape::{escape, has_colors};
use weir_common::number::{count, parse_size};
use weir_rules::source::Selection;
use weir_rules::{
    DEFAULT_MAX_PROBLEMS, Group, Lists, Loaded, Position, Problem, Rule, RuleOptions, Severity,
    SourceFile, json_schema,
};

/// Characters of the widest column that is padded: one long key does not widen every row.
const MAX_COLUMN_WIDTH: usize = 100;

/// Skipped files that are named.
const MAX_SKIPPED: usize = 10;

const EXAMPLES: &str = "\
Examples:
  weir check rules/
  weir check rules/ --deny-warnings --envoy envoy.yaml
  istioctl proxy-config all POD -o json | weir check rules/ --envoy -
  weir check --settings weir.toml
  weir check rules/ --overlay limits.overlay.yaml
  kubectl get configmap rules -o yaml | weir check -
  weir check --schema > weir-rules.schema.json

Exits 0 if the rules and settings load, 1 if a file has an error, or a warning with --deny-warnings.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Rule files, directories of them, or Kubernetes manifests; `-` for standard input. Default: those that the settings
    /// or the environment name, as for `weir serve`.
    #[arg(value_name = "RULES")]
    pub paths: Vec<PathBuf>,
    /// Also check a settings file, with the settings in the environment.
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    #[command(flatten)]
    pub rule_files: RuleFileArgs,
    /// The setting rules.calendar_months.
    #[arg(skip)]
    pub calendar_months: bool,
    /// Which files of directories are read.
    #[arg(skip = Selection::of_roots(Vec::new()))]
    pub selection: Selection,
    /// Format of the rules and their problems.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// Exit with 1 if there is a warning.
    #[arg(long)]
    deny_warnings: bool,
    /// Accept files of envoyproxy/ratelimit as they are: `shadow_mode` in `rate_limit`, which it ignores, is a warning.
    #[arg(long)]
    reference: bool,
    /// Compare the rules with an Envoy configuration or a dump of it, in YAML or JSON; `-` for standard input; can be
    /// repeated.
    #[arg(long, value_name = "FILE")]
    envoy: Vec<PathBuf>,
    /// Print a JSON Schema of rule files for editors, and exit.
    #[arg(long, exclusive = true)]
    pub schema: bool,
    /// Reject limits that may need more state per key.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    max_log_bytes: u64,
    /// List up to this many errors, and as many warnings, of each file.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_PROBLEMS, value_parser = count())]
    #[arg(allow_negative_numbers = true)]
    max_problems: usize,
}

pub fn print_schema() -> ExitCode {
    finish(print::json(&json_schema(), &mut io::stdout().lock()), ExitCode::SUCCESS)
}

/// Prints the rules, or all errors. Exits 1 on any error, and with `--deny-warnings` on any warning.
pub fn run(args: &CheckArgs) -> ExitCode {
    if args.paths.iter().chain(&args.envoy).filter(|path| is_stdin(path)).count() > 1 {
        on_stderr("error: only one of rules and --envoy can be standard input: name a file");
        return ExitCode::from(USAGE);
    }
    let options = RuleOptions {
        merge_domains: args.rule_files.merge_domains,
        max_log_bytes: args.max_log_bytes,
        max_problems: args.max_problems,
        lint: true,
        rejects_ignored_shadow_mode: !args.reference,
        calendar_months: args.calendar_months,
        lists: Lists::BesideRules,
        ..RuleOptions::default()
    };
    let overlay = &args.rule_files.overlay;
    let LoadedFiles { mut loaded, skipped } =
        rule_files::load(&args.paths, overlay, &options, &args.selection);
    let files = loaded.files.len();
    if loaded.is_good() && !args.envoy.is_empty() {
        envoy::check(envoy::MAX_EFFORT, &mut loaded, &args.envoy, args.max_problems);
    }
    let is_denied = args.deny_warnings && loaded.count(Severity::Warning) > 0;
    let is_good = loaded.is_good() && !is_denied;
    let printed = match args.output {
        Output::Text => {
            // Standard error may be closed while standard output is read.
            let is_colored = has_colors(&io::stderr());
            let _ = print_problems(&loaded, is_good, is_colored, &mut io::stderr().lock());
            if !skipped.is_empty() {
                let skipped = shortened(&skipped, MAX_SKIPPED);
                on_stderr(&format!("note: no rule files, skipped: {skipped}"));
            }
            if is_good { print_rules(&loaded, files, &mut io::stdout().lock()) } else { Ok(()) }
        }
        Output::Json => {
            let mut json = as_json(&loaded, is_good);
            json["skipped"] = skipped.into();
            print::json(&json, &mut io::stdout().lock())
        }
    };
    finish(printed, if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_problems(
    loaded: &Loaded<SourceFile>,
    is_good: bool,
    is_colored: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let problems = loaded.render(loaded.problems.iter());
    match is_colored {
        true => problems.lines().try_for_each(|line| writeln!(out, "{}", colored(line)))?,
        false => write!(out, "{problems}")?,
    }
    if let Some(summary) = loaded.omitted.summary() {
        writeln!(out, "{summary}")?;
    }
    if !is_good {
        let (errors, warnings) = (loaded.count(Severity::Error), loaded.count(Severity::Warning));
        let denied = if errors == 0 { " (--deny-warnings)" } else { "" };
        let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
        writeln!(out, "{errors}, {warnings}{denied}")?;
    }
    Ok(())
}

/// Returns a line of rendered problems with its severity, or the word `help`, in a color.
fn colored(line: &str) -> String {
    const COLORS: [(&str, &str); 3] =
        [(" error:", "1;31"), (" warning:", "1;33"), (" help:", "36")];
    let found = COLORS.iter().find_map(|(word, color)| {
        let (before, after) = line.split_once(word)?;
        // Others quote a rule file.
        let is_first = before.ends_with(':') && !before.starts_with(' ');
        (is_first || before == " ")
            .then(|| format!("{before}\u{1b}[{color}m{word}\u{1b}[0m{after}"))
    });
    found.unwrap_or_else(|| line.to_owned())
}

fn print_rules(loaded: &Loaded<SourceFile>, files: usize, out: &mut impl Write) -> io::Result<()> {
    let row = |rule: &Rule| {
        let (limits, flags) = (rule.limits_text(), flags(rule).join(" "));
        [rule.domain(), rule.path(), &limits, &flags].map(|cell| escape(cell).into_owned())
    };
    let rows: Vec<[String; 4]> =
        std::iter::once(["DOMAIN", "RULE", "LIMIT", "FLAGS"].map(Into::into))
            .chain(loaded.rules.rules().map(row))
            .collect();
    let width = |column: usize| {
        let widest = rows.iter().map(|row| row[column].chars().count()).max();
        widest.unwrap_or(0).min(MAX_COLUMN_WIDTH)
    };
    let [a, b, c] = [0, 1, 2].map(width);
    for [domain, rule, limit, flags] in &rows {
        writeln!(out, "{}", format!("{domain:a$}  {rule:b$}  {limit:c$}  {flags}").trim_end())?;
    }
    writeln!(
        out,
        "ok: {} in {} of {}, {}",
        counted(loaded.rules.rules().count(), "rule"),
        counted(loaded.rules.domains(), "domain"),
        counted(files, "file"),
        counted(loaded.count(Severity::Warning), "warning"),
    )
}

fn flags(rule: &Rule) -> Vec<String> {
    let mut flags: Vec<String> = [
        (rule.shadow_mode, "shadow_mode"),
        (rule.quota_mode, "quota_mode"),
        (rule.detailed_metric, "detailed_metric"),
        (rule.value_to_metric, "value_to_metric"),
        (rule.metadata.is_some(), "metadata"),
        (!rule.patches.is_empty(), "overlay"),
    ]
    .into_iter()
    .filter(|&(on, _)| on)
    .map(|(_, name)| name.to_owned())
    .collect();
    if let Some(values) = rule.listed_values() {
        flags.push(format!("values={values}"));
    }
    if let Some(Group { v4, v6 }) = rule.group() {
        flags.push(format!("group=v4/{v4},v6/{v6}"));
    }
    if let Some(reserve) = &rule.reserve {
        flags.push(format!("reserve={}", reserve.id));
    }
    if !rule.lease {
        flags.push("lease=false".to_owned());
    }
    let limits = rule.limits().iter();
    match limits.clone().filter(|limit| limit.charge_denied).count() {
        0 => {}
        all if all == limits.len() => flags.push("charge_denied".to_owned()),
        some => flags.push(format!("charge_denied={some}/{}", limits.len())),
    }
    let names: Vec<&str> =
        limits.map(|limit| &*limit.name).filter(|name| !name.is_empty()).collect();
    if !names.is_empty() {
        flags.push(format!("name={}", names.join(",")));
    }
    if !rule.replaces.is_empty() {
        flags.push(format!("replaces={}", rule.replaces.join(",")));
    }
    flags
}

fn as_json(loaded: &Loaded<SourceFile>, is_good: bool) -> serde_json::Value {
    json!({
        "ok": is_good,
        "problems": loaded.problems.iter().map(problem_json).collect::<Vec<_>>(),
        "omitted": { "errors": loaded.omitted.errors, "warnings": loaded.omitted.warnings },
        "rules": match loaded.is_good() {
            true => loaded.rules.rules().map(Rule::describe).collect::<Vec<_>>(),
            false => Vec::new(),
        },
    })
}

fn problem_json(problem: &Problem) -> serde_json::Value {
    json!({
        "severity": problem.severity.name(),
        "file": problem.file,
        "line": problem.position.and_then(Position::line),
        "column": problem.position.and_then(Position::column),
        "message": problem.message,
        "text": problem.text,
        "first": problem.first,
        "help": problem.help,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_severity_of_a_problem_has_a_color() {
        let red = "a.yaml:1:2:\u{1b}[1;31m error:\u{1b}[0m unknown key 'b': error: c";
        assert_eq!(colored("a.yaml:1:2: error: unknown key 'b': error: c"), red);
        let yellow = "a.yaml:\u{1b}[1;33m warning:\u{1b}[0m no rules";
        assert_eq!(colored("a.yaml: warning: no rules"), yellow);
        assert_eq!(colored("  help: write it"), " \u{1b}[36m help:\u{1b}[0m write it");
        for line in [" 1 | a: error: b", "   | ^^^^", "  note: the first is at a.yaml:1:1"] {
            assert_eq!(colored(line), line);
        }
    }
}
