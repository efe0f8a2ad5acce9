//! Steps of the wall clock, made by libfaketime, while the service runs.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{code, request};
use crate::support::weir::{Weir, serving};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
";

/// Much longer than a step should take to be followed.
const SOON: Duration = Duration::from_secs(20);

const STEPPED: &str = "the wall clock stepped, and limits follow it step_ms=";

/// What `faketime` loads into programs.
fn library() -> String {
    let asked = Command::new("faketime").args(["-f", "+0", "printenv", "LD_PRELOAD"]).output();
    let asked = asked.expect("faketime is installed: scripts/test does it");
    String::from_utf8(asked.stdout).unwrap().trim().to_owned()
}

/// A service whose wall clock can be stepped.
fn start() -> Weir {
    let setup = serving(RULES).file("offset", "+0");
    let offset = setup.path("offset");
    setup
        .env("LD_PRELOAD", library())
        .env("FAKETIME_TIMESTAMP_FILE", offset)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .start()
}

/// Puts the wall clock at so much from the true time.
fn step(weir: &Weir, offset: &str) {
    fs::write(weir.path("offset.new"), offset).unwrap();
    fs::rename(weir.path("offset.new"), weir.path("offset")).unwrap();
}

async fn ask(weir: &Weir) -> Code {
    code(weir.grpc, request("shop", &[("user", "ann")])).await
}

async fn is_admitted_soon(weir: &Weir) {
    let started = Instant::now();
    while ask(weir).await != Code::Ok {
        assert!(started.elapsed() < SOON, "not admitted within {SOON:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_step_forward_ends_windows() {
    let mut weir = start();
    assert_eq!([ask(&weir).await, ask(&weir).await], [Code::Ok, Code::OverLimit]);
    step(&weir, "+1y");
    is_admitted_soon(&weir).await;
    assert_eq!(ask(&weir).await, Code::OverLimit, "a new window, and one only");
    let step_ms = weir.until_said(STEPPED).unwrap();
    assert!(step_ms.starts_with("31536"), "{step_ms}");
}

#[tokio::test]
async fn a_step_back_admits_nothing_and_blocks_for_a_period_at_most() {
    let mut weir = start();
    assert_eq!([ask(&weir).await, ask(&weir).await], [Code::Ok, Code::OverLimit]);
    step(&weir, "-9y");
    let step_ms = weir.until_said(STEPPED).unwrap();
    assert!(step_ms.starts_with("-2838"), "{step_ms}");
    assert_eq!(ask(&weir).await, Code::OverLimit);
    // A period later.
    step(&weir, "-8y");
    is_admitted_soon(&weir).await;
}
