//! `weir settings`: prints a settings file with every setting at its default.

use std::io::Write;
use std::process::ExitCode;

use crate::settings::example;

pub(super) const EXAMPLES: &str = "\
Examples:
  weir settings > weir.toml
  weir serve --settings weir.toml";

/// Prints the file.
pub fn run() -> ExitCode {
    // The reader may have closed the pipe, as `head` does.
    let _ = std::io::stdout().lock().write_all(example::toml().as_bytes());
    ExitCode::SUCCESS
}
