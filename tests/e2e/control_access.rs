//! Who may use `/v1`, with the real program: tokens from files, and what browsers could send.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::control_api::{ControlApi, of_user};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 2 } }
";

/// A service whose tokens are `reader` and `writer`.
fn with_tokens() -> Setup {
    let setup = serving(RULES).file("read", "reader\n").file("write", "writer\n");
    let (read, write) = (setup.path("read"), setup.path("write"));
    setup.env("WEIR__DEBUG__READ_TOKEN_FILE", read).env("WEIR__DEBUG__WRITE_TOKEN_FILE", write)
}

fn with_token(weir: &Weir, token: &str) -> ControlApi {
    ControlApi::new(weir).with("authorization", &format!("Bearer {token}"))
}

fn block() -> Value {
    of_user("ann", &json!({ "action": "block" }))
}

/// Returns the statuses of each endpoint: of the reads, and of the writes.
fn statuses(api: &ControlApi) -> (Vec<u16>, Vec<u16>) {
    let key = "domain=shop&descriptor=user=ann";
    let state = format!("state?{key}");
    let reads = ["audit", "controls", "history", "openapi.json", "rules", "top", &state];
    let reads = reads.map(|path| api.get(&format!("/v1/{path}")).0);
    let writes = [
        api.put("b", &block()).0,
        api.delete("/v1/controls/b").0,
        api.delete(&format!("/v1/state?{key}")).0,
    ];
    (reads.to_vec(), writes.to_vec())
}

#[test]
fn a_wrong_token_may_nothing_and_a_read_token_may_not_write() {
    let weir = with_tokens().env("WEIR__DEBUG__REQUIRE_TOKEN", "true").start();
    let none = ControlApi::new(&weir);
    assert_eq!(statuses(&none), (vec![401; 7], vec![401; 3]));
    assert_eq!(statuses(&with_token(&weir, "wrong")), (vec![401; 7], vec![401; 3]));
    let reader = with_token(&weir, "reader");
    assert_eq!(statuses(&reader), (vec![200; 7], vec![403; 3]));
    // Nothing has changed.
    assert_eq!(reader.good("/v1/audit")["records"], json!([]));
    assert_eq!(statuses(&with_token(&weir, "writer")), (vec![200; 7], vec![200; 3]));
    let records = &reader.good("/v1/audit")["records"];
    assert_eq!(records.as_array().unwrap().len(), 3);
    assert_eq!(records[0]["who"], "write token");
    // Probes and pages stay open.
    for page in ["/livez", "/readyz", "/metrics", "/rules", "/status", "/log_level"] {
        assert_eq!(http::get(weir.debug, page).status, 200, "{page}");
    }
    weir.has_said("request to the debug port refused");
    for secret in ["reader", "writer"] {
        assert!(!weir.said().contains(secret), "{}", weir.said());
    }
}

#[test]
fn loopback_needs_no_token_unless_it_is_required() {
    for setup in [serving(RULES), with_tokens()] {
        assert_eq!(statuses(&ControlApi::new(&setup.start())), (vec![200; 7], vec![200; 3]));
    }
}

#[test]
fn what_a_web_page_could_send_is_refused() {
    let weir = serving(RULES).env("WEIR__DEBUG__ALLOWED_HOSTS", "weir.example").start();
    let api = || ControlApi::new(&weir);
    let refused = (vec![403; 7], vec![403; 3]);
    assert_eq!(statuses(&api().with("host", "evil.example")), refused);
    assert_eq!(statuses(&api().with("origin", "http://evil.example")), refused);
    assert_eq!(statuses(&api().with("sec-fetch-site", "cross-site")), refused);
    assert_eq!(api().get("/v1/controls?token=x").0, 400);
    assert_eq!(statuses(&api().with("host", "weir.example")), (vec![200; 7], vec![200; 3]));
    assert_eq!(api().good("/v1/audit")["records"].as_array().unwrap().len(), 3);
    // Other pages are for probes, which name the address of the pod.
    let host = [("host", "10.0.0.7:6070")];
    assert_eq!(http::get_with(weir.debug, "/readyz", &host).status, 200);
    assert_eq!(http::get_with(weir.debug, "/metrics", &host).status, 200);
}

#[test]
fn a_replaced_token_is_valid_soon_and_the_old_one_no_longer() {
    let weir = with_tokens().env("WEIR__DEBUG__REQUIRE_TOKEN", "true").start();
    fs::write(weir.path("new"), "second").unwrap();
    fs::rename(weir.path("new"), weir.path("read")).unwrap();
    let status = |token: &str| with_token(&weir, token).get("/v1/controls").0;
    wait_for("the new token is valid", || (status("second") == 200).then_some(()));
    assert_eq!((status("reader"), status("writer")), (401, 200));
    fs::remove_file(weir.path("read")).unwrap();
    wait_for("the error is logged", || {
        weir.said().contains("changed secret file is unusable").then_some(())
    });
    assert_eq!(status("second"), 200);
}

#[test]
fn unusable_token_settings_are_reported_at_the_start() {
    let (status, output) = serving(RULES).env("WEIR__DEBUG__REQUIRE_TOKEN", "true").run();
    assert_eq!(status.code(), Some(64), "{output}");
    assert!(output.contains("WEIR__DEBUG__REQUIRE_TOKEN: debug.require_token is true"), "{output}");
    let empty = with_tokens().file("write", "\n");
    let (status, output) = empty.run();
    assert_eq!(status.code(), Some(64), "{output}");
    assert!(output.contains("debug.write_token_file") && output.contains("is empty"), "{output}");
    let hosts = serving(RULES).env("WEIR__DEBUG__ALLOWED_HOSTS", "weir.example:6070");
    let (status, output) = hosts.run();
    assert_eq!(status.code(), Some(64), "{output}");
    assert!(output.contains("debug.allowed_hosts has \"weir.example:6070\""), "{output}");
    for login in ["ann:S3cret@weir.example", "https://S3cret@weir.example", "S3cret@weir.example"] {
        let (_, output) = serving(RULES).env("WEIR__DEBUG__ALLOWED_HOSTS", login).run();
        assert!(output.contains("***@weir.example") && !output.contains("S3cret"), "{output}");
    }
}

#[test]
fn the_log_level_is_changed_by_those_who_may_write() {
    let weir = with_tokens().env("WEIR__DEBUG__REQUIRE_TOKEN", "true").start();
    let put = |headers: &[(&str, &str)]| {
        http::ask(weir.debug, "PUT", "/log_level?level=warn", headers, b"").unwrap().status
    };
    let own = ("host", "localhost");
    assert_eq!(put(&[own]), 401);
    assert_eq!(put(&[own, ("authorization", "Bearer reader")]), 403);
    assert_eq!(put(&[("host", "evil.example"), ("authorization", "Bearer writer")]), 403);
    assert_eq!(
        put(&[own, ("origin", "http://evil.example"), ("authorization", "Bearer writer")]),
        403
    );
    assert_eq!(http::get(weir.debug, "/log_level").body, "info\n");
    assert_eq!(put(&[own, ("authorization", "Bearer writer")]), 200);
    assert_eq!(http::get(weir.debug, "/log_level").body, "warn\n");
}

#[test]
fn a_command_without_its_token_says_where_to_write_it() {
    let weir = with_tokens().env("WEIR__DEBUG__REQUIRE_TOKEN", "true").start();
    let run = |args: &str, token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(args.split(' ')).env_clear().env("WEIR_TOKEN", token);
        let ran = command.env("WEIR_SERVER", format!("http://{}", weir.debug)).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    for (token, wanted) in [("", "a token is needed"), ("wrong", "the token is wrong")] {
        for args in ["top", "block -d shop user=m1"] {
            let (code, error) = run(args, token);
            assert_eq!(code, Some(1), "{args}: {error}");
            assert!(error.starts_with(&format!("error: {wanted}\n")), "{args}: {error}");
            assert!(error.contains("--token-file FILE, or set WEIR_TOKEN"), "{args}: {error}");
            assert!(!error.contains("Authorization"), "{args}: {error}");
        }
    }
    assert_eq!(run("top", "reader"), (Some(0), String::new()));
}
