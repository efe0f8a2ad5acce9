//! The `weir` program: see `weir --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::run(std::env::args_os().collect())
}
