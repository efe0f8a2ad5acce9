//! `weir test --output text`: prints the results of tests for people.

use std::io::{self, Write};

use super::report::{FileReport, Report, TestReport};
use crate::print::counted;
use weir_common::escape::escape;

/// The most rules that are listed as not reached by a test.
const MAX_UNREACHED: usize = 20;

struct Colors {
    good: &'static str,
    bad: &'static str,
    reset: &'static str,
}

const COLORS: Colors = Colors { good: "\u{1b}[32m", bad: "\u{1b}[1;31m", reset: "\u{1b}[0m" };
const NO_COLORS: Colors = Colors { good: "", bad: "", reset: "" };

/// Prints the results to `out`, and the errors of files to `errors`.
pub(super) fn print(
    report: &Report,
    is_colored: bool,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<()> {
    let colors = if is_colored { &COLORS } else { &NO_COLORS };
    for file in &report.files {
        if !file.problems.is_empty() {
            // Standard error may be closed while standard output is read.
            let _ = write!(errors, "{}", file.rendered);
            continue;
        }
        writeln!(out, "{}", escape(&file.name))?;
        for test in &file.tests {
            print_test(file, test, colors, out)?;
        }
    }
    print_unreached(&report.unreached(), out)?;
    let (tests, failed, broken) = (report.tests(), report.failed(), report.broken());
    let color = if report.is_good() { colors.good } else { colors.bad };
    write!(out, "{color}{}: {} passed, {failed} failed", counted(tests, "test"), tests - failed)?;
    if broken > 0 {
        write!(out, "; {} with errors", counted(broken, "file"))?;
    }
    writeln!(out, "{}", colors.reset)
}

fn print_unreached(rules: &[&str], out: &mut impl Write) -> io::Result<()> {
    if !rules.is_empty() {
        writeln!(out, "rules that no test reaches:")?;
    }
    for rule in rules.iter().take(MAX_UNREACHED) {
        writeln!(out, "  {}", escape(rule))?;
    }
    match rules.len().saturating_sub(MAX_UNREACHED) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

fn print_test(
    file: &FileReport,
    test: &TestReport,
    colors: &Colors,
    out: &mut impl Write,
) -> io::Result<()> {
    let Colors { good, bad, reset } = colors;
    let name = escape(&test.name);
    if test.is_good() {
        return writeln!(out, "  {good}ok{reset}      {name}");
    }
    writeln!(out, "  {bad}FAILED{reset}  {name}")?;
    for line in test.failures.iter().flat_map(|failure| failure.lines(&file.name)) {
        writeln!(out, "    {line}")?;
    }
    match test.omitted {
        0 => Ok(()),
        omitted => writeln!(out, "    and {}", counted(omitted, "more failed step")),
    }
}
