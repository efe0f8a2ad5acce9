//! Panics are logged without waiting for the reader of the log. Each test runs itself in a process of its
//! own, because the panic hook is global.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use weir_common::threads::Failures;
use weir_telemetry::log::LogFormat;

/// Set in the process that panics: the number of lines it logs before.
const LINES: &str = "WEIR_TEST_LINES";

/// Panics on a thread of its own, and continues.
fn panic_after_lines(lines: usize) {
    let (levels, failures) = ("info".parse().unwrap(), Failures::default());
    let log = weir_telemetry::log::start(levels, LogFormat::Text, None, &failures).unwrap();
    for line in 0..lines {
        tracing::warn!(target: "weir", line, "a line to fill the pipe");
    }
    let panics = std::thread::Builder::new().name("worker".into());
    let ended = panics.spawn(|| panic!("on\npurpose")).unwrap().join();
    assert!(ended.is_err());
    println!("continued");
    drop(log);
}

/// The test `name` as the process that panics.
fn program(name: &str, lines: usize) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", name, "--nocapture"]).env(LINES, lines.to_string());
    program.env_remove("RUST_BACKTRACE").stdin(Stdio::null());
    program
}

fn lines() -> Option<usize> {
    std::env::var(LINES).ok()?.parse().ok()
}

#[test]
fn a_panic_is_one_line_of_the_log() {
    if let Some(lines) = lines() {
        return panic_after_lines(lines);
    }
    let ended = program("a_panic_is_one_line_of_the_log", 0).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let log = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("ERROR panic error=thread 'worker' at tests/panics.rs:"), "{log}");
    assert!(log.ends_with(": on\\npurpose\n"), "{log}");
}

#[test]
fn a_backtrace_is_a_field_of_its_own() {
    if let Some(lines) = lines() {
        return panic_after_lines(lines);
    }
    let mut program = program("a_backtrace_is_a_field_of_its_own", 0);
    let ended = program.env("RUST_BACKTRACE", "1").output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let log = String::from_utf8(ended.stderr).unwrap();
    let mut lines = log.lines();
    assert!(lines.next().unwrap().ends_with(": on\\npurpose backtrace="), "{log}");
    assert!(lines.any(|line| line.contains("panic_after_lines")), "{log}");
    assert!(log.lines().skip(1).all(|line| line.starts_with("    ")), "{log}");
}

#[test]
fn a_panic_does_not_wait_for_the_reader() {
    if let Some(lines) = lines() {
        return panic_after_lines(lines);
    }
    // More than a pipe holds, which is 64 KiB.
    let mut child = program("a_panic_does_not_wait_for_the_reader", 2_000)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut read = String::new();
        let _ = output.read_to_string(&mut read);
        let _ = sender.send(read);
    });
    let read = receiver.recv_timeout(Duration::from_secs(30));
    let _ = child.kill();
    child.wait().unwrap();
    assert!(read.as_ref().is_ok_and(|read| read.contains("continued")), "{read:?}");
}
