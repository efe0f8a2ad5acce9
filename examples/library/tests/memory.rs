//! The example counts in memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rules.yaml");

/// The running example.
struct Library {
    child: Child,
    address: String,
}

impl Library {
    fn start() -> Library {
        let mut command = Command::new(env!("CARGO_BIN_EXE_library-example"));
        let mut child =
            command.args([RULES, "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Library { child, address }
    }

    fn get(&self, user: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head =
            format!("GET / HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_user_may_ask_a_hundred_times_a_day() {
    let library = Library::start();
    let answers: Vec<String> = (0..102).map(|_| library.get("ann")).collect();
    let passed = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 200 OK")).count();
    // Unless midnight passed meanwhile.
    assert!((100..=102).contains(&passed), "{passed}");
    let denied = answers.iter().find(|answer| !answer.starts_with("HTTP/1.1 200"));
    if let Some(denied) = denied {
        assert!(
            denied.starts_with("HTTP/1.1 429 ") && denied.contains("retry-after: "),
            "{denied}"
        );
    }
    assert!(library.get("bob").starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn a_request_releases_its_hold() {
    let library = Library::start();
    for _ in 0..3 {
        let answer = library.get("batch");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
}

#[test]
fn invalid_rules_are_shown_with_their_place() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_library-example"));
    let output =
        command.args([concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "127.0.0.1:0"]).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("Cargo.toml:"), "{text}");
}
