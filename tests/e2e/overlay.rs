//! An overlay patches rules of files and of a management server, and changes while the service runs.

use std::fs;

use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir_rules::proto::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit};

use crate::support::api::{code, request};
use crate::support::files::read;
use crate::support::management::{Management, any};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, markdown, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
";

fn patch(set: &str) -> String {
    format!("patches:\n- match: {{ domain: shop }}\n  set: {set}\n")
}

/// Waits until the rules are those of these lines, which `/rlconfig` shows.
fn until(weir: &Weir, wanted: &[&str]) {
    wait_for(&format!("{wanted:?}"), || {
        let body = http::get(weir.debug, "/rlconfig").body;
        let lines: Vec<&str> = body.lines().collect();
        let all = lines.len() == wanted.len()
            && lines.iter().zip(wanted).all(|(line, wanted)| line.starts_with(wanted));
        all.then_some(())
    });
}

const ONE: &str = "shop.user: unit=YEAR requests_per_unit=1,";
const TWO: &str = "shop.user: unit=YEAR requests_per_unit=2,";

/// The overlay in `/status`.
fn status(weir: &Weir) -> serde_json::Value {
    http::get(weir.debug, "/status").json()["overlay"].take()
}

fn with_overlay(setup: Setup, text: &str) -> Setup {
    let path = setup.path("overlay");
    let setup = setup.file("overlay/a.overlay.yaml", text);
    setup.env("WEIR__RULES__OVERLAY", path).env("WEIR__RULES__POLL", "0")
}

#[tokio::test]
async fn an_overlay_of_files_is_applied_and_changed() {
    let weir = with_overlay(serving(RULES), &patch("{ requests_per_unit: 2 }")).start();
    let ann = || request("shop", &[("user", "ann")]);
    // The first rules that are active are patched.
    for wanted in [Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(code(weir.grpc, ann()).await, wanted);
    }
    let shown = status(&weir);
    assert_eq!((&shown["patches"], &shown["patched_rules"]), (&1.into(), &1.into()), "{shown}");
    assert!(shown["files"][0].as_str().unwrap().ends_with("overlay/a.overlay.yaml"));

    // The count is kept, as it is when the rule changes.
    let file = weir.path("overlay/a.overlay.yaml");
    fs::write(&file, patch("{ requests_per_unit: 3 }")).unwrap();
    until(&weir, &["shop.user: unit=YEAR requests_per_unit=3,"]);
    assert_eq!(code(weir.grpc, ann()).await, Code::OverLimit);
    assert_eq!(code(weir.grpc, request("shop", &[("user", "bob")])).await, Code::Ok);

    // Further files, and changes of the rules.
    fs::write(weir.path("overlay/b.overlay.yaml"), patch("{ unit: month }")).unwrap();
    until(&weir, &["shop.user: unit=MONTH requests_per_unit=3,"]);
    fs::write(weir.path("rules.yaml"), RULES.replace("user", "key")).unwrap();
    until(&weir, &["shop.key: unit=MONTH requests_per_unit=3,"]);
    fs::write(weir.path("overlay/b.overlay.yaml"), "patches: []\n").unwrap();
    fs::write(&file, "patches: []\n").unwrap();
    until(&weir, &["shop.key: unit=YEAR requests_per_unit=1,"]);
}

#[test]
fn the_command_of_the_document_serves_the_patched_rules() {
    let document = read("docs/overlay.md");
    let files = markdown::files(&document).into_iter();
    let setup = files.fold(Setup::new(), |setup, (name, text)| setup.file(&name, &text));
    let command = markdown::blocks_of(&document, "sh").swap_remove(0).text;
    let (variable, command) = command.trim_end().split_once(" weir ").unwrap();
    let (name, value) = variable.split_once('=').unwrap();
    let weir = command.split(' ').fold(setup.env(name, value), Setup::arg).start();
    assert_eq!(status(&weir)["patched_rules"], 2);
}

#[test]
fn an_invalid_overlay_is_rejected_and_the_one_before_stays() {
    let weir = with_overlay(serving(RULES), &patch("{ requests_per_unit: 2 }")).start();
    let file = weir.path("overlay/a.overlay.yaml");
    assert_eq!(weir.metric("weir_overlay_last_load_successful"), 1);
    fs::write(&file, patch("{ requests_per_unti: 3 }")).unwrap();
    wait_for("the refusal", || status(&weir)["refused"].is_object().then_some(()));
    until(&weir, &[TWO]);
    assert_eq!(weir.metric("weir_overlay_load_error_total"), 1);
    assert_eq!(weir.metric("weir_overlay_last_load_successful"), 0);
    assert_eq!(weir.metric("weir_config_load_error_total"), 0);
    let shown = status(&weir)["refused"]["problems"].to_string();
    assert!(shown.contains("a.overlay.yaml:3:10: error: unknown key"), "{shown}");
    assert!(shown.contains("did you mean `requests_per_unit`?"), "{shown}");
    weir.has_said("new overlay is rejected, the previous one stays active");
    let [(kind, problem)] = &weir.problems()[..] else { panic!("{:?}", weir.problems()) };
    let text = problem["text"].as_str().unwrap();
    assert!(kind == "rules" && text.contains("new overlay is rejected"), "{problem}");
    assert_eq!(
        (&problem["line"], &problem["column"], &problem["count"]),
        (&3.into(), &10.into(), &1.into())
    );
    // The rules may change meanwhile.
    fs::write(weir.path("rules.yaml"), RULES.replace("user", "key")).unwrap();
    until(&weir, &["shop.key: unit=YEAR requests_per_unit=2,"]);
    fs::write(&file, patch("{ requests_per_unit: 5 }")).unwrap();
    until(&weir, &["shop.key: unit=YEAR requests_per_unit=5,"]);
    assert_eq!(weir.metric("weir_overlay_last_load_successful"), 1);
    wait_for("nothing is refused", || status(&weir)["refused"].is_null().then_some(()));
    assert!(status(&weir)["last_error"].is_object());
    wait_for("no problem is left", || weir.problems().is_empty().then_some(()));
}

#[test]
fn rules_load_without_an_overlay_that_is_invalid_from_the_start() {
    let weir = with_overlay(serving(RULES), "patches: [").start();
    until(&weir, &[ONE]);
    weir.has_said("overlay is rejected, rules load without it until it is fixed");
    assert!(status(&weir)["files"].is_null());
    fs::write(weir.path("overlay/a.overlay.yaml"), patch("{ requests_per_unit: 2 }")).unwrap();
    until(&weir, &[TWO]);
}

#[test]
fn a_rule_loads_without_a_patch_that_does_not_fit() {
    let patches = patch("{ burst: 3 }")
        + "- { match: {}, set: { requests_per_unit: 2 } }\n\
                  - { match: { domain: x }, set: { requests_per_unit: 2 } }\n";
    let weir = with_overlay(serving(RULES), &patches).start();
    until(&weir, &[TWO]);
    assert_eq!(weir.metric("weir_overlay_failed_patches"), 1);
    assert_eq!(weir.metric("weir_config_load_error_total"), 0);
    let said = weir.said();
    assert!(said.contains("a patch does not fit, rules load without it"), "{said}");
    assert!(said.contains("the patch matches nothing"), "{said}");
    let shown = status(&weir)["problems"].to_string();
    assert!(shown.contains("loads without this patch: fixed_window takes no `burst`"), "{shown}");
    fs::write(weir.path("overlay/a.overlay.yaml"), patch("{ requests_per_unit: 1 }")).unwrap();
    until(&weir, &[ONE]);
    assert_eq!(weir.metric("weir_overlay_failed_patches"), 0);
    assert_eq!(status(&weir)["problems"], "");
}

#[test]
fn overlays_and_tests_beside_the_rules_are_not_read_as_rules() {
    let setup =
        Setup::new().file("rules/shop.yaml", RULES).arg("serve").arg("--rules").arg("rules");
    let setup = setup.file("rules/shop.test.yaml", "tests: []\n");
    let setup = setup.file("rules/shop.overlay.yaml", &patch("{ requests_per_unit: 2 }"));
    let weir = setup.env("WEIR__RULES__OVERLAY", "rules").start();
    until(&weir, &[TWO]);
}

/// The rules of [`RULES`] as a resource.
fn resource(key: &str) -> RateLimitConfig {
    let rate_limit = RateLimitPolicy {
        unit: RateLimitUnit::Year.into(),
        requests_per_unit: 1,
        ..Default::default()
    };
    let descriptor = RateLimitDescriptor {
        key: key.to_owned(),
        rate_limit: Some(rate_limit),
        ..Default::default()
    };
    RateLimitConfig {
        name: "shop".to_owned(),
        domain: "shop".to_owned(),
        descriptors: vec![descriptor],
        ..Default::default()
    }
}

#[tokio::test]
async fn an_overlay_patches_rules_of_a_management_server() {
    let server = Management::start();
    let setup = Setup::new()
        .arg("serve")
        .env("CONFIG_TYPE", "GRPC_XDS_SOTW")
        .env("CONFIG_GRPC_XDS_SERVER_URL", server.address.to_string());
    let gcra = patch("{ algorithm: gcra, requests_per_unit: 2, burst: 2 }");
    let weir = with_overlay(setup, &gcra).start_unhealthy();
    server.sotw.next();
    server.set("1", vec![any(&resource("user"))]);
    until(&weir, &[TWO]);
    for wanted in [Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(code(weir.grpc, request("shop", &[("user", "ann")])).await, wanted);
    }

    // A change of the overlay alone, and a new set of rules.
    let file = weir.path("overlay/a.overlay.yaml");
    fs::write(&file, patch("{ requests_per_unit: 3 }")).unwrap();
    until(&weir, &["shop.user: unit=YEAR requests_per_unit=3,"]);
    server.set("2", vec![any(&resource("key"))]);
    until(&weir, &["shop.key: unit=YEAR requests_per_unit=3,"]);

    // A rejected set changes nothing, also with the next overlay.
    server.rejected("3", vec![any(&resource(""))], "2");
    fs::write(&file, patch("{ requests_per_unit: 4 }")).unwrap();
    until(&weir, &["shop.key: unit=YEAR requests_per_unit=4,"]);

    // A patch that does not fit is no reason to reject a set.
    fs::write(&file, patch("{ burst: 4 }")).unwrap();
    until(&weir, &["shop.key: unit=YEAR requests_per_unit=1,"]);
    server.set("4", vec![any(&resource("user"))]);
    until(&weir, &[ONE]);
    assert_eq!(weir.metric("weir_overlay_failed_patches"), 1);
    fs::write(&file, gcra).unwrap();
    until(&weir, &[TWO]);
    assert_eq!(weir.metric("weir_overlay_failed_patches"), 0);
}
