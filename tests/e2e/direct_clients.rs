//! The programs of examples/clients, which ask weir without Envoy. `scripts/install-clients` installs what those in Python
//! and Go need.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::tools::tool;
use crate::support::weir::{Weir, serving};

/// One login, whose minute does not end during a test.
const RULES: &str = "domain: example
descriptors:
  - key: path
    rate_limit: { unit: year, requests_per_unit: 1 }
";

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/clients").join(name)
}

/// Runs a program twice: once within the limit, and once over it.
fn run(command: impl Fn(&Weir) -> Command) {
    let weir = serving(RULES).start();
    for expected in ["welcome, 0 more attempts\n", "try again in "] {
        let output = command(&weir).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.starts_with(expected), "{text}{errors}");
        let wait = text.strip_prefix("try again in ").and_then(|rest| rest.strip_suffix(" s\n"));
        assert!(wait.is_none_or(|wait| wait.parse::<u32>().is_ok()), "{text}");
    }
}

#[test]
fn curl() {
    run(|weir| {
        let mut command = Command::new("sh");
        command.arg(source("login.sh")).arg(weir.http.to_string());
        command
    });
}

/// The example beside the program that is tested: `cargo test` builds it.
#[test]
fn rust() {
    let program = Path::new(env!("CARGO_BIN_EXE_weir")).with_file_name("examples").join("login");
    assert!(program.is_file(), "it is not built: cargo build --example login");
    run(|weir| {
        let mut command = Command::new(&program);
        command.arg(format!("http://{}", weir.grpc));
        command
    });
}

#[test]
#[ignore = "nightly: scripts/test --all runs it"]
fn python() {
    let Some(python) = tool("clients/python/bin/python", "WEIR_GRPC_PYTHON") else { return };
    run(|weir| {
        let mut command = Command::new(&python);
        command.arg(source("login.py")).arg(weir.grpc.to_string());
        command
    });
}

#[test]
#[ignore = "nightly: scripts/test --all runs it"]
fn go() {
    let Some(program) = tool("clients/login-go", "WEIR_GRPC_GO") else { return };
    run(|weir| {
        let mut command = Command::new(&program);
        command.arg(weir.grpc.to_string());
        command
    });
}
