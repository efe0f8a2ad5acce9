//! The pages of the debug port, failures of `/json` in detail, and the version.

use serde_json::{Value, json};

use crate::support::api::{code, request, user_request};
use crate::support::redis::Server;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: year, requests_per_unit: 2 }
  - key: path
    value: /files/*
    share_threshold: true
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 5 }
    descriptors:
      - key: method
        quota_mode: true
        rate_limit: { unlimited: true }
  - key: api
    rate_limits:
      - { unit: minute, unit_multiplier: 15, requests_per_unit: 300 }
      - { unit: hour, requests_per_unit: 1000, algorithm: token_bucket, burst: 10 }
";

fn status(weir: &Weir) -> Value {
    http::get(weir.debug, "/status").json()
}

#[test]
fn rlconfig_is_that_of_the_reference_with_what_it_cannot_say_appended() {
    let weir = serving(RULES).start();
    let page = http::get(weir.debug, "/rlconfig");
    assert_eq!(page.header("content-type"), Some("text/plain; charset=utf-8"));
    let wanted = "\
shop.user: unit=YEAR requests_per_unit=2, shadow_mode: false, quota_mode: false
shop.path_/files/*: unit=MINUTE requests_per_unit=5, shadow_mode: true, quota_mode: false
shop.path_/files/*.method: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: true
shop.api: unit=MINUTE requests_per_unit=300, shadow_mode: false, quota_mode: false, \
limits: 300 per 15 minutes, charge_denied: false + 1000 per hour, token_bucket of 10
";
    assert_eq!(page.body, wanted);

    let together = "domain: d\ncharge: together\non_store_failure: allow\ndescriptors:\n\
                    - { key: k, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    let weir = serving(together).start();
    let wanted = "d.k: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false, \
                  limits: 1 per day, charge_denied: false, charge: together, on_store_failure: allow\n";
    assert_eq!(http::get(weir.debug, "/rlconfig").body, wanted);
}

#[test]
fn rules_are_listed_as_json_with_their_place() {
    let weir = serving(RULES).start();
    let rules = http::get(weir.debug, "/rules");
    assert_eq!(rules.header("content-type"), Some("application/json"));
    let rules = rules.json();
    assert_eq!(rules["rules"].as_array().unwrap().len(), 4);
    let file = |rule: &Value| rule["file"].as_str().unwrap().to_owned();
    let user = &rules["rules"][0];
    assert!(file(user).ends_with("rules.yaml"), "{user}");
    assert_eq!((&user["line"], &user["column"]), (&json!(3), &json!(5)));
    assert_eq!((&user["rule"], &user["name"]), (&json!("user"), &json!("per-user")));
    let path = &rules["rules"][1];
    assert_eq!(path["entries"], json!([{ "key": "path", "value": "/files/*" }]));
    assert_eq!((&path["share_threshold"], &path["shadow_mode"]), (&json!([true]), &json!(true)));
    let below = &rules["rules"][2];
    assert_eq!(
        (&below["share_threshold"], &below["unlimited"]),
        (&json!([true, false]), &json!(true))
    );
    let limits = &rules["rules"][3]["limits"];
    assert_eq!((&limits[0]["unit_multiplier"], &limits[0]["unit"]), (&json!(15), &json!("minute")));
    assert_eq!(
        (&limits[1]["algorithm"], &limits[1]["burst"]),
        (&json!("token_bucket"), &json!(10))
    );
}

#[test]
fn the_index_lists_every_page() {
    let weir = serving(RULES).start();
    for path in ["/", "/whatever"] {
        let index = http::get(weir.debug, path);
        assert_eq!(index.status, 200);
        let mut pages: Vec<&str> =
            index.body.lines().map(|line| line.split_once(": ").unwrap().0).collect();
        for page in &pages {
            assert_ne!(http::get(weir.debug, page).body, index.body, "{page}");
        }
        let sorted = pages.clone();
        pages.sort_unstable();
        assert_eq!(pages, sorted);
        let probes_and_pages = [
            "/livez",
            "/log_level",
            "/metrics",
            "/readyz",
            "/rlconfig",
            "/rules",
            "/runbooks",
            "/status",
            "/v1/openapi.json",
        ];
        assert_eq!(pages, probes_and_pages);
    }
}

#[test]
fn the_status_shows_version_store_and_health_as_json_and_text() {
    let redis = Server::start();
    let weir = serving(RULES)
        .env("REDIS_URL", format!("127.0.0.1:{}", redis.port()))
        .env("WEIR__STORE__ON_FAILURE", "deny")
        .env("WEIR__RUNTIME__THREADS", "2")
        .store_times("1s")
        .start();
    let up = wait_for("all connections are up", || {
        let status = status(&weir);
        (status["store"]["backends"][0]["connections"] == 3).then_some(status)
    });
    assert_eq!((&up["version"], &up["serving"]), (&json!(env!("CARGO_PKG_VERSION")), &json!(true)));
    assert_eq!(up["not_serving_because"], json!([]));
    assert!(up["uptime_seconds"].is_u64() && up["commit"].is_string(), "{up}");
    assert_eq!((&up["log_level"], &up["rules"]["rules"]), (&json!("info"), &json!(4)));
    let address = format!("127.0.0.1:{}", redis.port());
    assert_eq!(up["store"]["backends"][0]["address"], json!(address));
    assert_eq!(up["store"]["backends"][0]["breaker"], "closed");
    assert_eq!(
        (&up["store"]["on_failure"], &up["store"]["failing"]),
        (&json!("deny"), &json!(false))
    );

    redis.stop();
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let down = wait_for("the breaker opens, and that is a problem", || {
        http::post(weir.http, "/json", body);
        let status = status(&weir);
        let store = &status["store"];
        let is_open = store["backends"][0]["breaker"] == "open";
        let is_down = is_open && store["backends"][0]["down_because"].is_string();
        (is_down && store["failing"] == true).then_some(status)
    });
    assert!(down["store"]["degraded_charges"]["deny"].as_u64().unwrap() > 0, "{down}");
    assert!(has_store_problem(&down), "{down}");
    // Redis is back, and nobody asks for a decision.
    redis.go_on();
    wait_for("the end of the failure", || {
        let status = status(&weir);
        assert_eq!(status["store"]["failing"], has_store_problem(&status), "{status}");
        (status["store"]["failing"] == false).then_some(())
    });
}

fn has_store_problem(status: &Value) -> bool {
    status["problems"].as_array().unwrap().iter().any(|problem| problem["kind"] == "store")
}

#[test]
fn the_last_error_of_rules_stays_after_it_is_fixed() {
    let weir = serving("domain: d\nuint: day\n").start_unhealthy();
    let refused = wait_for("the rules are refused", || {
        Some(status(&weir)).filter(|status| !status["refused"].is_null())
    });
    assert_eq!(refused["refused"]["problems"], refused["last_error"]["problems"]);
    assert_eq!(refused["not_serving_because"], json!(["no rules are loaded"]));
    std::fs::write(weir.path("rules.yaml"), RULES).unwrap();
    let fixed = wait_for("the rules are loaded", || {
        Some(status(&weir)).filter(|status| !status["rules"].is_null())
    });
    assert!(fixed["refused"].is_null() && fixed["last_error"]["problems"].is_string(), "{fixed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_level_can_be_changed_while_it_runs() {
    let mut weir = serving(RULES).start();
    let level = |method: &str, query: &str| {
        let (uri, host) = (format!("/log_level{query}"), [("host", "localhost")]);
        let answer = http::ask(weir.debug, method, &uri, &host, b"").unwrap();
        (answer.status, answer.body)
    };
    assert_eq!(level("GET", ""), (200, "info\n".to_owned()));
    code(weir.grpc, user_request()).await;
    assert_eq!(level("PUT", "?level=debug%2Ch2=off"), (200, "debug,h2=off\n".to_owned()));
    code(weir.grpc, request("shop", &[("user", "bob")])).await;
    for bad in ["", "?level=", "?level=loud", "?level=info,info"] {
        assert_eq!(level("PUT", bad).0, 400, "{bad}");
    }
    // What a page can make a browser send.
    assert_eq!(level("POST", "?level=trace").0, 405);
    assert_eq!(level("GET", ""), (200, "debug,h2=off\n".to_owned()));
    weir.until_said("log level changed from=\"info\" to=\"debug,h2=off\"").unwrap();
    weir.until_said("decision domain=\"shop\" descriptor=\"user=bob\"").unwrap();
    assert!(!weir.said().contains("user=ann"), "{}", weir.said());
}

#[test]
fn failures_of_json_are_detailed_if_asked_for() {
    let redis = Server::start();
    let detailed = |rules: &str| {
        serving(rules)
            .env("WEIR__HTTP__JSON_ERRORS", "detailed")
            .env("REDIS_URL", format!("127.0.0.1:{}", redis.port()))
            .store_times("1s")
    };
    let weir = detailed(RULES).env("WEIR__GRPC__MAX_MESSAGE", "1KiB").start();
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let ask = |weir: &Weir, body: &str, status: u16, reason: &str| -> String {
        let answer = http::post(weir.http, "/json", body);
        assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["reason"]), (status, &json!(reason)), "{answer:?}");
        assert_eq!(error["status"], status, "{answer:?}");
        error["message"].as_str().unwrap().to_owned()
    };
    // On a busy machine Redis may be too late.
    wait_for("Redis answers", || {
        (http::post(weir.http, "/json", body).status == 200).then_some(())
    });
    ask(&weir, "{", 400, "invalid_json");
    assert!(ask(&weir, r#"{"domian":1}"#, 400, "invalid_json").contains("domian"));
    let message = ask(&weir, r#"{"domain":"shop"}"#, 400, "invalid_request");
    assert_eq!(message, "rate limit descriptor list must not be empty");
    ask(&weir, &" ".repeat(2_000), 413, "too_large");

    let without = detailed("domain: d\nuint: day\n").start_unhealthy();
    ask(&without, body, 503, "no_rules");

    redis.stop();
    wait_for("the store fails", || {
        (http::post(weir.http, "/json", body).status == 503).then_some(())
    });
    assert!(ask(&weir, body, 503, "store_failed").starts_with("the store "));
    redis.go_on();
}

#[test]
fn the_version_has_the_commit() {
    let (status, output) = Setup::new().arg("--version").run();
    assert_eq!(status.code(), Some(0));
    let version = format!("weir {} (", env!("CARGO_PKG_VERSION"));
    let commit = output.trim_end().split_once(&version).unwrap().1.strip_suffix(')').unwrap();
    let is_hash = commit.len() == 12 && commit.bytes().all(|digit| digit.is_ascii_hexdigit());
    assert!(is_hash || commit == "unknown", "{output}");
}
