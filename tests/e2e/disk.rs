//! Counters on disk: what a process that ends in any way leaves to the next one.

mod full;
mod kills;
mod lost;

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::support::http;
use crate::support::wait_for;
use crate::support::weir::{Setup, Weir, serving};

/// No test reaches the end of the window.
const YEAR: &str = "domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 3000 }
";

/// A service that keeps its counters in this directory.
fn on_disk(path: &Path, sync: &str) -> Setup {
    serving(YEAR)
        .env("WEIR__STORE__KIND", "disk")
        .env("WEIR__STORE__DISK__PATH", path)
        .env("WEIR__STORE__DISK__SYNC", sync)
        .env("WEIR__DRAIN__DELAY", "0")
}

/// An answer to one hit.
struct Hit {
    allowed: bool,
    /// The hits that the limit has left after it.
    remaining: u64,
}

/// Sends a hit of a user; none if there is no answer.
fn try_hit(to: SocketAddr, user: &str) -> Option<Hit> {
    let body = format!(
        r#"{{"domain": "shop", "descriptors": [{{"entries": [{{"key": "user", "value": "{user}"}}]}}]}}"#
    );
    let answer = http::ask(to, "POST", "/json", &[], body.as_bytes()).ok()?;
    if ![200, 429].contains(&answer.status) {
        return None;
    }
    let json: serde_json::Value = serde_json::from_str(&answer.body).ok()?;
    let remaining = json["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0);
    Some(Hit { allowed: answer.status == 200, remaining })
}

/// A file whose reading lasts until it is cut.
fn endless(path: &Path) -> File {
    let file = File::create(path).unwrap();
    file.set_len(1 << 40).unwrap();
    file
}

/// A metric of `/metrics` that need not be a whole number.
fn gauge(weir: &Weir, name: &str) -> f64 {
    let text = http::get(weir.http, "/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn it_is_ready_when_everything_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let log = endless(&directory.path().join("log.1"));
    let weir = on_disk(directory.path(), "20ms").start_unhealthy();
    let reason = "counters are not loaded from disk yet\n";
    wait_for("rules are loaded", || (http::get(weir.http, "/readyz").body == reason).then_some(()));
    assert_eq!(http::get(weir.http, "/readyz").status, 503);
    assert!(try_hit(weir.http, "a").is_none());
    log.set_len(0).unwrap();
    wait_for("it is ready", || weir.is_healthy().then_some(()));
    assert!(try_hit(weir.http, "a").unwrap().allowed);
}

#[test]
fn until_everything_is_loaded_the_policy_decides() {
    let directory = tempfile::tempdir().unwrap();
    let log = endless(&directory.path().join("log.1"));
    let weir = on_disk(directory.path(), "20ms").env("WEIR__STORE__ON_FAILURE", "deny");
    let weir = weir.start_unhealthy();
    wait_for("it denies", || try_hit(weir.http, "a").map(|hit| assert!(!hit.allowed)));
    // Nevertheless it is not ready.
    assert_eq!(http::get(weir.http, "/readyz").status, 503);
    log.set_len(0).unwrap();
    wait_for("it is ready", || weir.is_healthy().then_some(()));
    let hit = try_hit(weir.http, "a").unwrap();
    assert!(hit.allowed && hit.remaining == 2_999);
}

#[test]
fn files_that_cannot_be_read_end_it() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log.1");
    assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
    let free = ["--grpc-address", "--http-address", "--debug-address"];
    let weir = free.iter().fold(on_disk(directory.path(), "20ms"), |weir, address| {
        weir.arg(address).arg("127.0.0.1:0")
    });
    let (status, said) = weir.run();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("log.1 in it cannot be read: it is a FIFO"), "{said}");
    assert!(log.exists());
}

#[test]
fn a_second_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let weir = on_disk(directory.path(), "1s").start();
    let free = ["--grpc-address", "--http-address", "--debug-address"];
    let second = free.iter().fold(on_disk(directory.path(), "1s"), |second, address| {
        second.arg(address).arg("127.0.0.1:0")
    });
    let (status, said) = second.run();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("which another process uses"), "{said}");
    assert!(try_hit(weir.http, "a").unwrap().allowed);
}
