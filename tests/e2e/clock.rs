//! Steps of the wall clock while the service runs, made with libfaketime.

use std::fs;
use std::process::Command;

use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{code, user_request, wait_for_code};
use crate::support::wait_for;
use crate::support::weir::{Setup, Weir, serving};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
";

const STEPPED: &str = "the wall clock stepped step_ms=";

/// The library that `faketime` preloads into programs.
fn library() -> String {
    let printed = Command::new("faketime").args(["-f", "+0", "printenv", "LD_PRELOAD"]).output();
    let printed = printed.expect("faketime is missing: run scripts/test, which installs it");
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

/// Gives a service a wall clock that can be [stepped](step).
pub fn steppable(setup: Setup) -> Setup {
    let setup = setup.file("offset", "+0");
    let offset = setup.path("offset");
    setup
        .env("LD_PRELOAD", library())
        .env("FAKETIME_TIMESTAMP_FILE", offset)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

fn start() -> Weir {
    steppable(serving(RULES)).start()
}

/// Sets the offset of the wall clock from the true time.
pub fn step(weir: &Weir, offset: &str) {
    fs::write(weir.path("offset.new"), offset).unwrap();
    fs::rename(weir.path("offset.new"), weir.path("offset")).unwrap();
}

/// Sends two requests to a service with a limit of one.
async fn exhaust(weir: &Weir) {
    for wanted in [Code::Ok, Code::OverLimit] {
        assert_eq!(code(weir.grpc, user_request()).await, wanted);
    }
}

#[tokio::test]
async fn a_step_forward_ends_windows() {
    let mut weir = start();
    exhaust(&weir).await;
    step(&weir, "+1y");
    wait_for_code(weir.grpc, user_request(), Code::Ok).await;
    assert_eq!(code(weir.grpc, user_request()).await, Code::OverLimit, "one new window");
    let said = weir.until_said(STEPPED).unwrap();
    let step_ms: u64 = said.split(' ').next().unwrap().parse().unwrap();
    // The two clocks are read one after the other.
    assert!(step_ms.abs_diff(365 * 24 * 3_600 * 1_000) < 1_000, "{said}");
    let [(kind, problem)] = &weir.problems()[..] else { panic!("{:?}", weir.problems()) };
    let text = problem["text"].as_str().unwrap();
    assert!(kind == "clock" && text.ends_with(": limits follow it"), "{problem}");
    assert_eq!(
        (&problem["runbook"], weir.metric("weir_clock_steps_total")),
        (&"WeirClockStepped".into(), 1)
    );
}

#[tokio::test]
async fn a_step_back_admits_nothing_and_blocks_for_at_most_one_period() {
    let mut weir = start();
    exhaust(&weir).await;
    step(&weir, "-9y");
    let step_ms = weir.until_said(STEPPED).unwrap();
    assert!(step_ms.starts_with("-2838"), "{step_ms}");
    assert_eq!(code(weir.grpc, user_request()).await, Code::OverLimit);
    // One period later. A step that soon follows another is logged, too.
    step(&weir, "-8y");
    wait_for_code(weir.grpc, user_request(), Code::Ok).await;
    let logged = || weir.said().matches(STEPPED).count();
    wait_for("a line for each step", || (logged() == 2).then_some(()));
}
