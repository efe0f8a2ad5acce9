//! The program under test.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The exit code and the outputs of a program.
pub type Ended = (Option<i32>, String, String);

/// Runs weir in a directory.
pub fn weir(directory: &Path, args: &[&str]) -> Ended {
    weir_with(directory, args, "")
}

/// Runs weir in a directory, with a text as standard input.
pub fn weir_with(directory: &Path, args: &[&str], input: &str) -> Ended {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    run(weir.args(args).current_dir(directory), input.as_bytes())
}

/// Runs a program to its end, with an input.
pub fn run(program: &mut Command, input: &[u8]) -> Ended {
    let program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = program.spawn().unwrap();
    // It may not be read.
    let _ = program.stdin.take().unwrap().write_all(input);
    let ran = program.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

/// Runs a command line of weir in a directory.
pub fn command_line(directory: &Path, command: &str) -> Ended {
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words.first(), Some(&"weir"));
    weir(directory, &words[1..])
}

/// Returns what `weir check` finds in rules and a configuration of Envoy, `envoy.yaml`. Each problem has a help.
pub fn problems_with_envoy(rules: &str, envoy: &str) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    fs::write(directory.path().join("envoy.yaml"), envoy).unwrap();
    let args = ["check", "rules.yaml", "--envoy", "envoy.yaml", "--output", "json"];
    let (_, printed, _) = weir(directory.path(), &args);
    let json: Value = serde_json::from_str(&printed).unwrap();
    let problems = json["problems"].as_array().unwrap();
    let has_help = |problem: &Value| problem["help"].as_str().is_some_and(|help| !help.is_empty());
    assert!(problems.iter().all(has_help), "{printed}");
    problems.clone()
}
