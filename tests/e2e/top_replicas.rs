//! Lists of top keys that replicas share through a real Redis.

use std::process::Command;

use serde_json::{Value, json};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{code, request};
use crate::support::control_api::ControlApi;
use crate::support::redis::{Reply, Server};
use crate::support::wait_for;
use crate::support::weir::{Setup, Weir, serving};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 3 }
  - key: api_key
    rate_limit: { unit: year, requests_per_unit: 100 }
  - key: api_key
    value: s3cret2
    descriptors:
      - key: user
        rate_limit: { unit: year, requests_per_unit: 100 }
      - key: path
        rate_limit: { unit: year, requests_per_unit: 100 }
  - key: trial
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 0 }
";

fn setup(redis: &Server) -> Setup {
    serving(RULES)
        .env("REDIS_URL", redis.addr())
        .env("WEIR__TOP__SHARE", "true")
        .env("WEIR__TOP__REDACT", "api_key")
}

async fn ask(weir: &Weir, key: &str, value: &str, times: usize) -> Vec<Code> {
    let mut codes = Vec::new();
    for _ in 0..times {
        codes.push(code(weir.grpc, request("shop", &[(key, value)])).await);
    }
    codes
}

/// The key, value and count of each row.
fn rows(list: &Value) -> Vec<(String, String, u64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let row = |row: &Value| {
        let entry = &row["entries"][0];
        assert_eq!(row["error"], 0, "{row}");
        (text(&entry["key"]), text(&entry["value"]), row["count"].as_u64().unwrap())
    };
    list["rows"].as_array().unwrap().iter().map(row).collect()
}

fn row(key: &str, value: &str, count: u64) -> (String, String, u64) {
    (key.to_owned(), value.to_owned(), count)
}

/// What `weir top` prints.
fn top(weir: &Weir, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("top").args(args).env_clear().env("WEIR_SERVER", format!("http://{}", weir.debug));
    String::from_utf8(command.output().expect("weir runs").stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_list_the_keys_of_all_and_no_hidden_value_is_in_their_lists() {
    let redis = Server::start();
    let (a, b) = (setup(&redis).start(), setup(&redis).start());
    assert_eq!(ask(&a, "user", "ann", 2).await, [Code::Ok; 2]);
    assert_eq!(ask(&b, "user", "ann", 3).await, [Code::Ok, Code::OverLimit, Code::OverLimit]);
    ask(&a, "user", "bob", 1).await;
    ask(&a, "trial", "x", 2).await;
    ask(&b, "trial", "x", 1).await;
    ask(&a, "api_key", "s3cret", 1).await;
    ask(&b, "api_key", "s3cret", 1).await;
    for weir in [&a, &b] {
        let api = ControlApi::new(weir);
        let list = wait_for("the lists of both", || {
            let list = api.good("/v1/top?domain=shop&window=1m");
            (list["replicas"] == 2 && list["total"] == 11).then_some(list)
        });
        assert_eq!((&list["scope"], &list["window"]), (&json!("all"), &json!("1m")));
        let all = rows(&list);
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(
            all.contains(&row("user", "ann", 5)) && all.contains(&row("user", "bob", 1)),
            "{all:?}"
        );
        let hidden = all.iter().find(|(key, ..)| key == "api_key").unwrap();
        assert!(hidden.1.starts_with("hash:") && hidden.2 == 2, "{hidden:?}");
        let denied = api.good("/v1/top?by=denied&scope=all&window=start");
        assert_eq!(rows(&denied), [row("user", "ann", 2)]);
        let would_be = api.good("/v1/top?by=would_be_denied");
        assert_eq!(rows(&would_be), [row("trial", "x", 3)]);
        let near = api.good("/v1/top?by=near");
        assert_eq!((&near["rows"][0]["used"], &near["replicas"]), (&json!(3), &json!(2)));
        assert_eq!(
            rows(&api.good("/v1/top?domain=shop&rule=user&limit=1")),
            [row("user", "ann", 5)]
        );
    }
    let here = ControlApi::new(&a).good("/v1/top?scope=here&domain=shop&rule=user");
    assert_eq!((&here["scope"], &here["replicas"]), (&json!("here"), &json!(1)));
    assert_eq!(rows(&here), [row("user", "ann", 2), row("user", "bob", 1)]);

    let printed = top(&b, &["-d", "shop", "--rule", "user"]);
    assert!(printed.contains("\n   5          0  shop    user  user=ann\n"), "{printed}");
    assert!(printed.contains(" on 2 replicas"), "{printed}");
    let printed = top(&b, &["--here", "--by", "would-be-denied"]);
    assert!(printed.contains("\n   1          0  shop    trial  trial=x\n"), "{printed}");
    assert!(printed.contains(" on this replica"), "{printed}");

    let keys = redis.command(&["KEYS", "weir:{top}?*"]);
    let keys: Vec<String> = keys.list().iter().map(Reply::text).collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    for key in &keys {
        let text = redis.command(&["GET", key]).text();
        assert!(
            text.contains("ann") && text.contains("hash:") && !text.contains("s3cret"),
            "{text}"
        );
        let expires = redis.command(&["PTTL", key]).int();
        assert!((1..=10_000).contains(&expires), "{expires}");
    }
    // A replica that has ended is listed until its lists expire.
    drop(b);
    keys.iter().for_each(|key| drop(redis.command(&["DEL", key])));
    let api = ControlApi::new(&a);
    wait_for("its own list", || (api.good("/v1/top")["replicas"] == 1).then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_names_a_hidden_value_is_found_by_its_path_and_by_the_one_that_is_shown() {
    let redis = Server::start();
    let (a, b) = (setup(&redis).start(), setup(&redis).start());
    // Only one of them has hits of it.
    for last in [("user", "ann"), ("path", "/x")] {
        let entries = [("api_key", "s3cret2"), last];
        assert_eq!(code(a.grpc, request("shop", &entries)).await, Code::Ok);
    }
    ask(&b, "user", "bob", 1).await;
    let list = |weir: &Weir, rule: &str, scope: &str| {
        let list = ControlApi::new(weir)
            .good(&format!("/v1/top?domain=shop&rule={rule}&window=1m&scope={scope}"));
        list["rows"].as_array().unwrap().clone()
    };
    // Until each has written its own.
    for weir in [&a, &b] {
        let both = || ControlApi::new(weir).get("/v1/top").1["replicas"] == 2;
        wait_for("two lists", || both().then_some(()));
    }
    let rows = wait_for("the lists of both", || {
        let rows = list(&b, "api_key_s3cret2.user", "all");
        (!rows.is_empty()).then_some(rows)
    });
    assert_eq!((rows.len(), &rows[0]["entries"][1]["value"]), (1, &json!("ann")), "{rows:?}");
    let shown = rows[0]["rule"].as_str().unwrap();
    assert!(shown.starts_with("api_key_hash:") && shown.ends_with(".user"), "{shown}");
    for rule in ["api_key_s3cret2.user", shown] {
        assert_eq!(list(&a, rule, "all"), rows, "{rule}");
        assert_eq!(list(&a, rule, "here"), rows, "{rule}");
        assert_eq!(list(&b, rule, "here"), Vec::<Value>::new(), "{rule}");
        for weir in [&a, &b] {
            ControlApi::new(weir).good(&format!("/v1/history?domain=shop&rule={rule}"));
        }
    }
    let printed = top(&b, &["-d", "shop", "--rule", "api_key_s3cret2.path"]);
    assert!(printed.contains("path=/x") && !printed.contains("s3cret2"), "{printed}");
    assert_eq!(
        top(&b, &["-d", "shop", "--rule", shown]).matches("user=ann").count(),
        1,
        "the column RULE"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_lists_are_not_shared_each_replica_has_its_own() {
    let redis = Server::start();
    let user = ["on", ">pw", "~*", "+@all", "-eval"];
    redis.command(&[&["ACL", "SETUSER", "weir"], &user[..]].concat());
    let mut refused = setup(&redis).env("REDIS_AUTH", "weir:pw").start();
    refused.until_said("top keys are not shared any more").unwrap();
    let api = ControlApi::new(&refused);
    let list = api.good("/v1/top");
    assert_eq!((&list["scope"], &list["replicas"]), (&json!("here"), &json!(1)));
    let (status, error) = api.get("/v1/top?scope=all");
    assert_eq!((status, &error["error"]), (503, &json!("redis refuses the lists of replicas")));
    let off = serving(RULES).start();
    let api = ControlApi::new(&off);
    assert_eq!(api.good("/v1/top")["scope"], "here");
    let (status, error) = api.get("/v1/top?scope=all");
    assert_eq!((status, &error["error"]), (404, &json!("the lists of replicas are not shared")));
}
