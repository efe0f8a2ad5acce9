//! `weir settings`: prints a settings file with every setting at its default.

use std::io::Write;
use std::process::ExitCode;

use super::output::finish;
use crate::settings::example;

pub(super) const EXAMPLES: &str = "\
Examples:
  weir settings > weir.toml
  weir serve --settings weir.toml";

/// Prints the file.
pub fn run() -> ExitCode {
    let toml = example::toml();
    finish(std::io::stdout().lock().write_all(toml.as_bytes()), ExitCode::SUCCESS)
}
