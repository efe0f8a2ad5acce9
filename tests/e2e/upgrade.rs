//! Another build of weir beside today's, on one Redis: what an upgrade and a rollback go through.
//!
//! `scripts/test-upgrade` builds the other one and names it in `WEIR_OLD`. Without that, both are today's
//! build, so that these tests work whenever they are needed.

mod controls;
mod counters;
mod kept;
mod outage;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::http;
use crate::support::redis::Server;
use crate::support::weir::{Setup, Weir, serving};

/// One of the two builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    Old,
    New,
}

impl Build {
    fn program(self) -> PathBuf {
        let old = std::env::var_os("WEIR_OLD").filter(|_| self == Build::Old);
        old.map_or_else(|| env!("CARGO_BIN_EXE_weir").into(), PathBuf::from)
    }

    /// A service of this build that counts in memory.
    fn serving(self, rules: &str) -> Setup {
        let setup = serving(rules).build(self.program()).env("WEIR__DRAIN__DELAY", "0");
        setup.env("WEIR__HTTP__ALLOW_NEGATIVE_HITS", "true")
    }

    /// A service of this build that counts in a Redis, which may be slow.
    fn on(self, redis: &Server, rules: &str) -> Setup {
        self.serving(rules).env("REDIS_URL", redis.addr())
    }
}

/// Stops a service as Kubernetes does.
fn stop(mut weir: Weir) {
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0), "{}", weir.said_in_all());
}

/// What a hit got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Admitted, with this many hits left.
    Ok(u64),
    Denied,
}

/// Sends one descriptor of the domain `shop` with further members.
fn send(to: SocketAddr, entries: &[(&str, &str)], members: &Value) -> Answer {
    let entries = entries.iter().map(|(key, value)| json!({ "key": key, "value": value }));
    let mut descriptor = json!({ "entries": entries.collect::<Vec<_>>() });
    for (name, value) in members.as_object().into_iter().flatten() {
        descriptor[name] = value.clone();
    }
    let body = json!({ "domain": "shop", "descriptors": [descriptor] });
    let answer = http::post(to, "/json", body.to_string());
    match answer.status {
        200 => Answer::Ok(answer.json()["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)),
        429 => Answer::Denied,
        status => panic!("{status}: {answer:?}"),
    }
}

fn hit(to: &Weir, entries: &[(&str, &str)]) -> Answer {
    send(to.http, entries, &Value::Null)
}

/// Returns one hit.
fn refund(to: &Weir, entries: &[(&str, &str)]) {
    let answer = send(to.http, entries, &json!({ "isNegativeHits": true }));
    assert!(matches!(answer, Answer::Ok(_)), "{answer:?}");
}

/// Asks `/v1`, whose document is that of its build.
fn ask(weir: &Weir, method: &str, path: &str, body: &Value) -> Value {
    let headers = [("host", "localhost"), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = http::ask(weir.debug, method, path, &headers, body.as_bytes()).expect("HTTP");
    assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
    answer.json()
}
