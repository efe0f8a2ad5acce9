//! `weir settings`: prints a settings file to start from.

use std::io::Write;
use std::process::ExitCode;

use crate::settings::example;

pub fn run() -> ExitCode {
    // Whoever reads may have seen enough, and closed the pipe.
    let _ = std::io::stdout().lock().write_all(example::toml().as_bytes());
    ExitCode::SUCCESS
}
