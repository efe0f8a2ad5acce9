//! The `weir` program: see `weir --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::run(std::env::args_os().collect())
}
