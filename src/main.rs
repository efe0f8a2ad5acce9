//! The `weir` program: see `weir --help`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::run(std::env::args_os().collect())
}
