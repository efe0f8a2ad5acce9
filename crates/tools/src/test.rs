//! `weir test`: runs the tests that users write for their rules, in this process and with a simulated clock.

mod compare;
mod file;
mod junit;
mod read;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod text;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::print::{finish, on_stderr};
use report::{FileReport, Report};
use weir_common::escape::has_colors;
use weir_common::number::{count, parse_size};
use weir_rules::source::{FileKind, Selection};
use weir_rules::{DEFAULT_MAX_PROBLEMS, RuleOptions};

const EXAMPLE: &str = "\
Examples:
  weir test rules/
  weir test rules/shop.test.yaml --output junit > report.xml
  weir test rules/ --filter login

It lists rules that no test reaches, unless --filter leaves tests out.

Exits 0 if all tests pass, 1 if one fails or a file has an error.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct TestArgs {
    /// Test files, or directories with files named .test.yaml.
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
    /// Run only the tests whose names contain this text.
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// Format of the results.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: TestOutput,
    /// Reject limits that may need more state per key.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    max_log_bytes: u64,
    /// List up to this many errors of each file.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_PROBLEMS, value_parser = count())]
    #[arg(allow_negative_numbers = true)]
    max_problems: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TestOutput {
    Text,
    Junit,
}

/// Runs all tests and prints their results. Exits 1 unless all pass.
pub fn run(args: &TestArgs) -> ExitCode {
    let report = report(args);
    if let Some(filter) = args.filter.as_ref().filter(|_| report.files.is_empty()) {
        on_stderr(&format!("error: no test has '{filter}' in its name"));
        return ExitCode::FAILURE;
    }
    let mut out = io::stdout().lock();
    let printed = match args.output {
        TestOutput::Text => {
            let is_colored = has_colors(&out);
            text::print(&report, is_colored, &mut out, &mut io::stderr().lock())
        }
        TestOutput::Junit => junit::print(&report, &mut out),
    };
    finish(printed, if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(args: &TestArgs) -> Report {
    let selection = Selection::of_roots(args.paths.clone());
    let options = RuleOptions {
        max_log_bytes: args.max_log_bytes,
        max_problems: args.max_problems,
        ..RuleOptions::default()
    };
    let (files, problems) = selection.read_kind(FileKind::Test);
    let filter = args.filter.as_deref();
    let tested = files.into_iter().map(|file| run::run_file(file, filter, &selection, &options));
    let tested = tested.filter(|file| !file.tests.is_empty() || !file.problems.is_empty());
    let unreadable = problems.into_iter().map(FileReport::unreadable);
    Report { files: tested.chain(unreadable).collect() }
}
