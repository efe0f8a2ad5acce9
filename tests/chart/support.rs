//! Helpers that other tests have too.

#![allow(dead_code, reason = "these tests use a part of them")]

#[path = "../support/certificates.rs"]
pub mod certificates;
#[path = "../e2e/support/http.rs"]
pub mod http;
#[path = "../e2e/support/management.rs"]
pub mod management;
#[path = "../e2e/support/program.rs"]
pub mod program;
#[path = "../support/promtool.rs"]
pub mod promtool;
#[path = "../support/redis.rs"]
pub mod redis;

use std::io::Write as _;
use std::path::{Path, PathBuf};

pub use redis::{PATIENCE, wait_for};

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns a file that scripts/test installs below `.tools`, or says that its checks are skipped.
pub fn tool(variable: &str, path: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let tool = named.or_else(|| Some(root().join(".tools").join(path)).filter(|it| it.is_file()));
    if tool.is_none() {
        // Written past the capture of the output of tests, so that it is seen.
        let reason = format!("SKIPPED: .tools/{path} is missing: scripts/test installs it\n");
        std::io::stderr().write_all(reason.as_bytes()).expect("standard error is open");
    }
    tool
}
