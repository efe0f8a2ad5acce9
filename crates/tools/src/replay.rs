//! `weir replay`: sends the requests of an access log through rules, and reports what they would have denied.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use weir_replay::{Input, Mapping, MappingArgs, Replay, ReplayOutput};

use super::print::{self, USAGE};
use super::rule_files::{self, is_stdin};
use weir_common::escape::escape;
use weir_common::number::count;
use weir_common::suggest::nearest;
use weir_rules::{Rule, RuleSet};

const EXAMPLES: &str = "\
Examples:
  weir replay rules/ --traffic access.log -d shop --descriptor 'remote_address={x_forwarded_for}'
  weir replay rules/ --traffic access.jsonl.gz -d shop --descriptor 'path={path}' --output html > report.html
  weir replay rules/ --compare new-rules/ --traffic access.csv -d shop --descriptor 'user={user}'

Exits 0 whatever was denied, 1 if a file has an error or no line is a request.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Rule files, directories of them, or Kubernetes manifests; `-` for standard input.
    #[arg(required = true, value_name = "RULES")]
    paths: Vec<PathBuf>,
    /// The log of requests, plain or gzip; `-` for standard input.
    #[arg(long, value_name = "FILE", default_value = "-")]
    traffic: PathBuf,
    #[command(flatten)]
    mapping: MappingArgs,
    /// Other rules to compare with RULES: report requests that only one of the two denies; can be repeated.
    #[arg(long, value_name = "OTHER_RULES")]
    compare: Vec<PathBuf>,
    /// An overlay of RULES, or a directory with files named .overlay.yaml; can be repeated.
    #[arg(long, value_name = "FILE")]
    overlay: Vec<PathBuf>,
    /// An overlay of OTHER_RULES, which are RULES unless --compare names others; can be repeated.
    #[arg(long, value_name = "FILE")]
    compare_overlay: Vec<PathBuf>,
    /// Format of the report.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: ReplayOutput,
    /// Let several files add to one domain, as MERGE_DOMAIN_CONFIG does.
    #[arg(long)]
    merge_domains: bool,
    /// Keep up to N counters, of up to 100 bytes each, like store.memory.max_keys.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = count())]
    #[arg(allow_negative_numbers = true)]
    max_keys: usize,
}

pub fn run(args: &ReplayArgs) -> ExitCode {
    let (replay, input) = match prepare(args) {
        Ok(prepared) => prepared,
        Err(code) => return code,
    };
    let (report, result) = replay.run(input);
    let printed = report.print(args.output, &mut io::stdout().lock());
    let problem = result.err().or_else(|| report.problem());
    let code = problem.map_or(ExitCode::SUCCESS, |problem| fail(&problem, ExitCode::FAILURE));
    print::finish(printed, code)
}

/// Prints an error. Returns the exit code.
fn fail(error: &str, code: ExitCode) -> ExitCode {
    print::on_stderr(&format!("error: {error}"));
    code
}

/// Reads the arguments and opens the files. After an error, which is printed, returns the exit code.
fn prepare(args: &ReplayArgs) -> Result<(Replay, Input), ExitCode> {
    let usage = ExitCode::from(USAGE);
    if is_stdin(&args.traffic) && args.paths.iter().chain(&args.compare).any(|path| is_stdin(path))
    {
        let error = "rules and traffic cannot both be standard input: write --traffic FILE";
        return Err(fail(error, usage));
    }
    let mapping = Mapping::read(&args.mapping).map_err(|error| fail(&error, usage))?;
    let rules = load(&args.paths, &args.overlay, args, &mapping.domain)?;
    let rules = (names(&args.paths, &args.overlay), rules);
    let other = match args.compare.is_empty() && args.compare_overlay.is_empty() {
        true => None,
        false => {
            let paths = if args.compare.is_empty() { &args.paths } else { &args.compare };
            let other = load(paths, &args.compare_overlay, args, &mapping.domain)?;
            Some((names(paths, &args.compare_overlay), other))
        }
    };
    if is_stdin(&args.traffic) && io::stdin().is_terminal() {
        print::on_stderr("reading the log from standard input");
    }
    let input = Input::open(&args.traffic).map_err(|error| fail(&error, ExitCode::FAILURE))?;
    Ok((Replay::new(mapping, rules, other, args.max_keys), input))
}

fn load(
    paths: &[PathBuf],
    overlay: &[PathBuf],
    args: &ReplayArgs,
    domain: &str,
) -> Result<RuleSet, ExitCode> {
    let rules = rule_files::load_default(paths, overlay, args.merge_domains);
    let rules = rules.ok_or(ExitCode::FAILURE)?;
    if rules.domain(domain).is_none() {
        let domains: BTreeSet<&str> = rules.rules().map(Rule::domain).collect();
        let help = match nearest(domain, domains.iter().copied()) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("the domains are {}", Vec::from_iter(domains).join(", ")),
        };
        let name = names(paths, overlay);
        let error = format!("{name} has no rules for domain '{domain}': {help}");
        return Err(fail(&error, ExitCode::from(USAGE)));
    }
    Ok(rules)
}

fn names(paths: &[PathBuf], overlay: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().chain(overlay).map(|path| path.to_string_lossy()).collect();
    escape(&names.join(" ")).into_owned()
}
