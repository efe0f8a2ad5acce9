//! `/v1/history`: what was before someone looks. Every answer is checked against docs/reference/openapi.json.

use serde_json::{Value, json};
use weir::proto::weir::budget::v1 as pb;
use weir::proto::weir::budget::v1::budget_service_client::BudgetServiceClient;

use crate::resp;
use crate::support::api::{ask, channel, request};
use crate::support::control_api::ControlApi;
use crate::support::redis::Client;
use crate::support::weir::serving;
use crate::support::{http, wait_for, wait_until};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
  - key: token
    rate_limit: { unit: year, requests_per_unit: 0 }
  - key: trial
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
";

/// Returns the sum of a series.
fn sum(history: &Value, series: &str) -> u64 {
    history["series"][series].as_array().unwrap().iter().filter_map(Value::as_u64).sum()
}

/// Returns a history of the last seconds with `over` requests over the limit.
fn until_over(api: &ControlApi, query: &str, over: u64) -> Value {
    wait_for("the requests are in the history", || {
        let history = api.good(&format!("/v1/history?step=1s{query}"));
        (sum(&history, "over_limit") == over).then_some(history)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_looks_later_sees_what_was_counted_and_what_has_happened() {
    let weir = serving(RULES).env("WEIR__TOP__REDACT", "token").start();
    let api = ControlApi::new(&weir);
    let hit = async |key, value| drop(ask(weir.grpc, request("shop", &[(key, value)])).await);
    for _ in 0..3 {
        hit("user", "ann").await;
        hit("trial", "x").await;
    }
    ask(weir.grpc, request("", &[("user", "ann")])).await.unwrap_err();
    let denied = || api.good("/v1/history?step=1s")["denials"].as_array().unwrap().len();
    wait_until("a denial of each rule is recorded", async || {
        hit("token", "s3cret").await;
        denied() >= 2
    })
    .await;
    let over = weir.metric(r#"weir_requests_total{outcome="over_limit"}"#);
    let history = until_over(&api, "", over);

    assert_eq!(history["step_seconds"], 1);
    assert_eq!((sum(&history, "within_limit"), sum(&history, "errors")), (3, 1), "{history}");
    assert_eq!(sum(&history, "would_be_over_limit"), 2);
    for name in ["within_limit", "over_limit", "would_be_over_limit", "errors", "p50_ms", "p99_ms"]
    {
        assert_eq!(history["series"][name].as_array().unwrap().len(), 300, "{name}");
    }
    let p99 = history["series"]["p99_ms"].as_array().unwrap();
    assert!(p99.iter().any(|ms| ms.as_f64().is_some_and(|ms| ms > 0.0)), "{history}");
    let rule = |wanted: &str| {
        let rules = history["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["rule"] == wanted).unwrap().clone()
    };
    let counts = |within, over, would_be_over| {
        json!({
            "domain": "shop", "within_limit": within, "over_limit": over,
            "would_be_over_limit": would_be_over, "errors": 0,
        })
    };
    for (name, mut wanted) in
        [("user", counts(2, 1, 0)), ("token", counts(0, over - 1, 0)), ("trial", counts(1, 0, 2))]
    {
        wanted["rule"] = name.into();
        assert_eq!(rule(name), wanted);
    }
    let text = history.to_string();
    assert!(!text.contains("s3cret") && text.contains("hash:"), "{text}");
    let denials = history["denials"].as_array().unwrap();
    let denial = denials.iter().find(|denial| denial["rule"] == "token").unwrap();
    assert_eq!((&denial["domain"], &denial["limit"]), (&json!("shop"), &json!("0 per year")));
    assert!(denial["at"].is_string() && denial["suppressed"].is_u64(), "{denial}");

    // Of one rule.
    let user = until_over(&api, "&domain=shop&rule=user", 1);
    assert_eq!((sum(&user, "within_limit"), &user["rules"]), (2, &Value::Null));
    let all_of_user = user["denials"].as_array().unwrap();
    assert!(all_of_user.iter().all(|denial| denial["rule"] == "user"), "{user}");
    // A rule keeps its series when others are loaded, and what was loaded is an event.
    std::fs::write(weir.path("rules.yaml"), RULES.replace("trial", "other")).unwrap();
    wait_for("the reload is recorded", || {
        let events = api.good("/v1/history?step=1s")["events"].clone();
        let events = events.as_array().unwrap().clone();
        let reload =
            events.iter().find(|it| it["event"] == "reload" && it["changes"].is_object())?;
        (reload["changes"]["removed"] == 1 && reload["at"].is_string()).then_some(())
    });
    assert_eq!(sum(&until_over(&api, "&domain=shop&rule=user", 1), "within_limit"), 2);

    let (status, error) = api.get("/v1/history?domain=shop&rule=usr");
    assert_eq!((status, &error["help"]), (404, &json!("did you mean 'user'?")));
    let (status, error) = api.get("/v1/history?domain=shpo&rule=user");
    assert_eq!((status, &error["error"]), (404, &json!("unknown domain 'shpo'")));
    assert_eq!(error["help"], json!("did you mean 'shop'?"));
    assert_eq!(api.get("/v1/history?domain=shop").0, 400);
    let hour = api.good("/v1/history");
    assert_eq!(hour["step_seconds"], 10);
    assert_eq!(hour["series"]["errors"].as_array().unwrap().len(), 360);
}

/// Calls of `ShouldRateLimit` are in the first test.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_timed_whatever_their_protocol() {
    let mut weir = serving(RULES).env("WEIR__RESP__ADDRESS", "127.0.0.1:0").start();
    let mut redis_client = Client::connect(resp::address(&mut weir).port()).unwrap();
    let mut budgets = BudgetServiceClient::new(channel(weir.grpc).await);
    let api = ControlApi::new(&weir);
    let timed = || {
        let history = api.good("/v1/history?step=1s");
        let p99 = history["series"]["p99_ms"].as_array().unwrap();
        p99.iter().filter(|ms| ms.is_number()).count()
    };
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let entry = pb::Entry { key: "user".into(), value: "ann".into() };
    let descriptors = vec![pb::Descriptor { entries: vec![entry] }];
    let reserve =
        pb::ReserveRequest { domain: "shop".into(), descriptors, amount: 1, ..Default::default() };
    for protocol in ["/json", "/v1/budget/reserve", "Reserve", "WEIR.CHECK"] {
        let before = timed();
        match protocol {
            "Reserve" => drop(budgets.reserve(reserve.clone()).await.unwrap()),
            "WEIR.CHECK" => {
                redis_client.send(&["WEIR.CHECK", "shop", "1", "user", "ann"]).unwrap();
            }
            path => drop(http::post(weir.http, path, body)),
        }
        // Only then the next: each is in a second of its own.
        wait_for(protocol, || (timed() > before).then_some(()));
    }
    assert_eq!(weir.metric("weir_resp_decision_duration_seconds_count"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_denials_of_a_rule_with_a_secret_value_are_found_by_its_path() {
    let rules = "domain: shop\ndescriptors:\n  - {key: token, value: s3cret, rate_limit: {unit: day, requests_per_unit: 0}}\n";
    let weir = serving(rules).env("WEIR__TOP__REDACT", "token").start();
    let api = ControlApi::new(&weir);
    let denials = || api.good("/v1/history?domain=shop&rule=token_s3cret")["denials"].clone();
    wait_until("a denial is recorded", async || {
        drop(ask(weir.grpc, request("shop", &[("token", "s3cret")])).await);
        denials().as_array().is_some_and(|denials| !denials.is_empty())
    })
    .await;
    let denials = denials().to_string();
    assert!(denials.contains("token_hash:") && !denials.contains("s3cret"), "{denials}");
}
