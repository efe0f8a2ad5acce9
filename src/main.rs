//! The `weir` program: see `weir --help`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

use std::process::ExitCode;

/// Returns memory to the system soon after clients have left; see .cargo/config.toml.
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    weir::cli::run(std::env::args_os().collect())
}
