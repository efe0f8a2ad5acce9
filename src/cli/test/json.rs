//! `weir test --output json`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::report::{Difference, Failure, FileReport, Report, TestReport};
use crate::cli::check::problem_json;
use weir_common::escape::escape;
use weir_rules::Position;

/// Prints the results as JSON, without any control character.
pub(super) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    format!("{:#}", report_json(report))
        .lines()
        .try_for_each(|line| writeln!(out, "{}", escape(line)))
}

fn report_json(report: &Report) -> Value {
    json!({
        "ok": report.is_good(),
        "tests": report.tests(),
        "failed": report.failed(),
        "files_with_errors": report.broken(),
        "files": report.files.iter().map(file_json).collect::<Vec<_>>(),
    })
}

fn file_json(file: &FileReport) -> Value {
    json!({
        "file": file.name,
        "problems": file.problems.iter().map(problem_json).collect::<Vec<_>>(),
        "omitted": { "errors": file.omitted.errors },
        "tests": file.tests.iter().map(test_json).collect::<Vec<_>>(),
    })
}

fn test_json(test: &TestReport) -> Value {
    json!({
        "name": test.name,
        "ok": test.is_good(),
        "line": test.position.line(),
        "requests": test.requests,
        "failures": test.failures.iter().map(failure_json).collect::<Vec<_>>(),
        "omitted": { "failures": test.omitted },
    })
}

fn failure_json(failure: &Failure) -> Value {
    let Failure { position, step, at, differences } = failure;
    json!({
        "line": position.line(),
        "column": Position::column(*position),
        "step": step,
        "at_ms": at / 1_000,
        "differences": differences.iter().map(difference_json).collect::<Vec<_>>(),
    })
}

fn difference_json(Difference { key, expected, actual }: &Difference) -> Value {
    json!({ "key": key, "expected": expected, "actual": actual })
}
