//! What a reload changes, in the log, the status and the rule files of the API; and `weir diff`.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::weir::{Weir, serving};
use crate::support::{http, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 60 }
  - key: legacy
    rate_limit: { unit: day, requests_per_unit: 1 }
";

const NEW: &str = "\
domain: shop
descriptors:
  - key: new
    rate_limit: { unlimited: true }
  - key: user
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 90 }
";

const PATCHES: &str = "\
patches:
- match: { domain: shop, entries: [{ key: user }] }
  set: { requests_per_unit: 61 }
";

/// Runs `weir diff` in the directory of a server, which is the one that it asks. Returns the exit code, and
/// what it prints on both outputs.
fn diff(weir: &Weir, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("diff").args(args).current_dir(weir.path("."));
    command.env_clear().env("WEIR_SERVER", format!("http://{}", weir.debug));
    let Output { status, stdout, stderr } = command.output().expect("weir runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

fn v1(weir: &Weir, path: &str) -> http::Answer {
    http::ask(weir.debug, "GET", path, &[("host", "localhost")], b"").expect("HTTP")
}

fn changes(weir: &Weir) -> Value {
    http::get(weir.debug, "/status").json()["rules"]["changes"].take()
}

#[test]
fn a_reload_says_what_it_changes() {
    let weir = serving(RULES).env("WEIR__RULES__POLL", "0").start();
    assert_eq!(changes(&weir), Value::Null);
    let list = [
        "shop.user: 60 per minute → 90 per minute",
        "shop.user: shadow_mode: false → true",
        "shop.legacy removed",
        "1 rule added (shop.new)",
    ];
    for (text, wanted) in [
        (NEW, json!({ "added": 1, "removed": 1, "changed": 2, "list": list })),
        (
            "domain: shop\n",
            json!({
                "added": 0, "removed": 2, "changed": 0, "list": ["shop.new removed", "shop.user removed"],
            }),
        ),
    ] {
        fs::write(weir.path("rules.yaml"), text).unwrap();
        wait_for("the rules are loaded", || (changes(&weir) == wanted).then_some(()));
    }
    let said = wait_for("every reload is logged", || {
        let said = weir.said();
        (said.matches("rules are loaded").count() == 3).then_some(said)
    });
    assert!(said.contains(&list.join("; ")), "{said}");
}

#[test]
fn files_are_compared_with_the_active_rules() {
    let weir = serving(RULES).file("new.yaml", NEW).file("a.overlay.yaml", PATCHES);
    let weir = weir.file("broken.yaml", "domain: shop\nuint: day\n").start();
    assert_eq!(diff(&weir, &["rules.yaml"]), (0, "equal: 2 rules\n".to_owned(), String::new()));
    let (code, out, err) = diff(&weir, &["new.yaml"]);
    assert_eq!((code, err.as_str()), (1, ""));
    assert_eq!(
        out,
        "\
shop.user: 60 per minute → 90 per minute
shop.user: shadow_mode: false → true
shop.legacy removed: 1 per day
shop.new added: unlimited
2 changed, 1 removed, 1 added
"
    );
    let (code, out, _) =
        diff(&weir, &["--output", "json", "--overlay", "a.overlay.yaml", "rules.yaml"]);
    let wanted = json!({
        "added": [], "removed": [],
        "changed": [{
            "domain": "shop", "rule": "user", "member": "limits",
            "old": "60 per minute", "new": "61 per minute",
        }],
    });
    assert_eq!((code, serde_json::from_str::<Value>(&out).unwrap()), (1, wanted));

    let other = format!("http://{}", weir.http);
    for (args, error) in [
        (&["broken.yaml"][..], "unknown key 'uint'"),
        (&["missing.yaml"], "cannot be read"),
        (&["rules.yaml", "--", "broken.yaml"], "unknown key 'uint'"),
        (&["--server", "http://127.0.0.1:1", "rules.yaml"], "no answer from http://127.0.0.1:1"),
        (&["--server", &other, "rules.yaml"], "not as the API of weir"),
        (&["--server", &other, "rules.yaml", "--", "new.yaml"], "cannot be used with"),
        (&[], "<PATH>"),
    ] {
        let (code, out, err) = diff(&weir, args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(error), "{args:?}: {err}");
    }
}

#[test]
fn the_active_rules_are_a_rule_file_again() {
    let setup = serving(RULES).file("new.yaml", NEW).file("overlay/a.overlay.yaml", PATCHES);
    let overlay = setup.path("overlay");
    let weir = setup.env("WEIR__RULES__OVERLAY", overlay).start();
    let all = v1(&weir, "/v1/rules?format=yaml");
    assert_eq!(all.header("content-type"), Some("application/yaml"), "{all:?}");
    let one = v1(&weir, "/v1/rules?format=yaml&domain=shop");
    assert_eq!((one.status, one.header("content-type")), (200, Some("application/yaml")));
    assert!(all.body.ends_with(&format!("---\n{}", one.body)), "{}", all.body);
    for (name, body) in [("all.yaml", &all.body), ("shop.yaml", &one.body)] {
        fs::write(weir.path(name), body).unwrap();
        assert_eq!(diff(&weir, &[name]).0, 0, "{body}");
        let with_overlay = ["--overlay", "overlay", name, "--", "rules.yaml"];
        assert_eq!(diff(&weir, &with_overlay), (0, "equal: 2 rules\n".to_owned(), String::new()));
        assert_eq!(diff(&weir, &[name, "--", "new.yaml"]).0, 1);
    }
    let unknown = v1(&weir, "/v1/rules?format=yaml&domain=shpo");
    assert_eq!(
        (unknown.status, unknown.json()["error"].as_str()),
        (404, Some("unknown domain 'shpo'"))
    );
    assert_eq!(unknown.json()["help"], "did you mean 'shop'?");
    assert_eq!(v1(&weir, "/v1/rules?format=json").json(), v1(&weir, "/v1/rules").json());
}
