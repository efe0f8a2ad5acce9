//! Prometheus' promtool, if it is installed.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Returns promtool: `WEIR_PROMTOOL`, what scripts/test installed, or that of the PATH. Without one,
/// says that a check is skipped.
pub fn promtool() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/promtool");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join("promtool"));
    let found = match std::env::var_os("WEIR_PROMTOOL") {
        Some(named) => Some(named.into()),
        None => [installed].into_iter().chain(in_path).find(|program| program.is_file()),
    };
    if found.is_none() {
        // Written past the capture of the output of tests, so that it is seen.
        let reason = "SKIPPED: promtool is missing: scripts/test installs it on Debian\n";
        std::io::stderr().write_all(reason.as_bytes()).expect("standard error is open");
    }
    found
}
