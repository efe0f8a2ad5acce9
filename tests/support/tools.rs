//! Programs that a test uses if they are installed.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Returns a program: the one that the variable names, what scripts/test installed, or that of the PATH.
/// Without one, says that a check is skipped, or fails with WEIR_REQUIRE_TOOLS.
pub fn tool(name: &str, variable: &str) -> Option<PathBuf> {
    // Of the workspace, in which the package of the test may be a directory further down.
    let directories = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let installed = directories.map(|directory| directory.join(".tools").join(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join(name));
    let found = match std::env::var_os(variable) {
        Some(named) => Some(named.into()),
        None => installed.chain(in_path).find(|program| program.is_file()),
    };
    if found.is_none() {
        let required =
            std::env::var_os("WEIR_REQUIRE_TOOLS").is_some_and(|value| !value.is_empty());
        assert!(!required, "{name} is missing: run scripts/test, or set {variable}");
        // Written past the capture of the output of tests, so that it is seen.
        let reason = format!("SKIPPED: {name} is missing: run scripts/test, or set {variable}\n");
        std::io::stderr().write_all(reason.as_bytes()).expect("standard error is open");
    }
    found
}

/// Returns promtool, which checks alerts and pages of metrics.
#[allow(dead_code, reason = "not every test uses it")]
pub fn promtool() -> Option<PathBuf> {
    tool("promtool", "WEIR_PROMTOOL")
}

/// Returns a Python with the modules kubernetes_validate and jsonschema.
#[allow(dead_code, reason = "not every test uses it")]
pub fn kubernetes_validate() -> Option<PathBuf> {
    tool("kubernetes-validate/bin/python", "WEIR_KUBERNETES_VALIDATE_PYTHON")
}

/// Returns Chromium, which opens HTML reports.
#[allow(dead_code, reason = "not every test uses it")]
pub fn chromium() -> Option<PathBuf> {
    tool("chromium", "WEIR_CHROMIUM")
}
