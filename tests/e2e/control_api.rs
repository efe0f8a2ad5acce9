//! `/v1`: what operators see and change, with counters in memory and in Redis. Every answer is checked
//! against docs/reference/openapi.json.

mod keys;
mod networks;
mod writes;

use std::net::SocketAddr;

use serde_json::{Value, json};
use weir::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{ask, request};
use crate::support::control_api::{ControlApi, of_user};
use crate::support::openapi::OpenApi;
use crate::support::redis::Server;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: year, requests_per_unit: 2 }
  - key: api
    rate_limits:
      - { name: exact, period: 7d, requests_per_unit: 5, algorithm: sliding_log }
      - { name: daily, unit: day, requests_per_unit: 100 }
  - key: free
    rate_limit: { unlimited: true }
  - key: job
    descriptors:
      - key: id
        rate_limit: { algorithm: concurrency, requests_per_unit: 3, hold_id: id }
";

/// A service and its API.
struct Bench {
    weir: Weir,
    api: ControlApi,
    redis: Option<Server>,
}

impl Bench {
    fn start(redis: Option<Server>) -> Bench {
        let weir = setup(redis.as_ref()).start();
        let api = ControlApi::new(&weir);
        wait_for("controls are shared", || {
            api.good("/v1/controls")["share_error"].is_null().then_some(())
        });
        Bench { weir, api, redis }
    }

    /// One that counts in memory, and one that counts in Redis.
    fn both() -> [Bench; 2] {
        [Bench::start(None), Bench::start(Some(Server::start()))]
    }

    fn is_shared(&self) -> bool {
        self.redis.is_some()
    }
}

fn setup(redis: Option<&Server>) -> Setup {
    let setup = serving(RULES);
    match redis {
        Some(redis) => setup.env("REDIS_URL", redis.addr()),
        None => setup,
    }
}

/// Sends a hit of one entry.
async fn hit(to: SocketAddr, key: &str, value: &str) -> RateLimitResponse {
    ask(to, request("shop", &[(key, value)])).await.expect("an answer")
}

/// Returns the codes of several hits.
async fn codes<const N: usize>(to: SocketAddr, key: &str, value: &str) -> [Code; N] {
    let mut codes = [Code::Unknown; N];
    for code in &mut codes {
        *code = hit(to, key, value).await.overall_code();
    }
    codes
}

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

#[tokio::test(flavor = "multi_thread")]
async fn a_block_denies_the_next_request_until_it_is_deleted() {
    for bench in Bench::both() {
        let (api, grpc) = (&bench.api, bench.weir.grpc);
        assert_eq!(codes(grpc, "user", "m1").await, [OK]);
        let block = of_user("m1", &json!({ "action": "block", "for": "1h", "reason": "scraping" }));
        let written = api.put_good("b1", &block);
        assert_eq!(
            (&written["control"]["id"], &written["rules"]),
            (&json!("b1"), &json!(["shop.user"]))
        );
        assert_eq!(written["shared"], bench.is_shared(), "{written}");
        assert_eq!(written["store_is_shared"], bench.is_shared(), "{written}");
        assert_eq!(written["kept"], bench.is_shared(), "{written}");
        let left = written["control"]["left_ms"].as_u64().unwrap();
        assert!(left > 3_000_000 && left <= 3_600_000, "{written}");

        let denied = hit(grpc, "user", "m1").await;
        let status = &denied.statuses[0];
        assert_eq!((denied.overall_code(), status.limit_remaining), (OVER, 0));
        assert!(status.current_limit.is_none(), "{denied:?}");
        assert_eq!(codes(grpc, "user", "m2").await, [OK]);

        let control = &api.good("/v1/controls/b1")["control"];
        assert_eq!(control["reason"], "scraping");
        let list = api.good("/v1/controls");
        assert_eq!(list["controls"][0]["id"], "b1");
        assert_eq!(
            (list["controls"].as_array().unwrap().len(), &list["share_error"]),
            (1, &Value::Null)
        );
        let state = api.good("/v1/state?domain=shop&descriptor=user=m1");
        assert_eq!(
            (&state["control"]["id"], &state["limits"][0]["used"]),
            (&json!("b1"), &json!(1))
        );

        let (status, deleted) = api.delete("/v1/controls/b1");
        assert_eq!((status, &deleted["shared"]), (200, &json!(bench.is_shared())));
        assert_eq!(deleted["store_is_shared"], bench.is_shared());
        // What was denied was not counted.
        assert_eq!(codes(grpc, "user", "m1").await, [OK, OVER]);
        assert_eq!(api.get("/v1/controls/b1").0, 404);
        assert_eq!(api.delete("/v1/controls/b1").0, 404);
        assert_eq!(api.good("/v1/controls")["controls"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowance_and_a_limit_change_what_is_decided() {
    for bench in Bench::both() {
        let (api, grpc) = (&bench.api, bench.weir.grpc);
        assert_eq!(codes(grpc, "user", "ann").await, [OK, OK, OVER]);
        api.put_good("a", &of_user("ann", &json!({ "action": "allow", "count": false })));
        assert_eq!(codes(grpc, "user", "ann").await, [OK, OK]);
        api.delete("/v1/controls/a");
        assert_eq!(codes(grpc, "user", "ann").await, [OVER]);

        let limit =
            json!({ "action": "limit", "limit": { "n": 10 }, "until": "2999-01-01T00:00:00Z" });
        let written = api.put_good("l", &of_user("ann", &limit));
        assert_eq!(written["control"]["limit"], json!({ "n": 10, "name": "" }));
        assert_eq!(codes(grpc, "user", "ann").await, [OK]);
        let state = api.good("/v1/state?domain=shop&descriptor=user%3Dann");
        assert_eq!((&state["limits"][0]["n"], &state["control"]["id"]), (&json!(10), &json!("l")));
        // A new one in its place.
        api.put_good("l", &of_user("ann", &json!({ "action": "limit", "limit": { "n": 1 } })));
        assert_eq!(codes(grpc, "user", "ann").await, [OVER]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing_and_what_matches_everything_needs_force() {
    for bench in Bench::both() {
        let (api, grpc) = (&bench.api, bench.weir.grpc);
        let all = json!({ "domain": "shop", "entries": [], "action": "block" });
        for query in ["all", "all?dry_run=1"] {
            let (status, error) = api.put(query, &all);
            assert!(status == 409 && error["help"].as_str().unwrap().contains("force"), "{error}");
        }
        let dry = api.put_good("all?dry_run=1&force=1", &all);
        assert_eq!(dry["shared"], bench.is_shared());
        assert_eq!(api.good("/v1/controls")["controls"], json!([]));
        assert_eq!(codes(grpc, "user", "ann").await, [OK]);
        assert_eq!(api.good("/v1/audit")["records"], json!([]));
        api.put_good("all?force=1", &all);
        assert_eq!(codes(grpc, "user", "ann").await, [OVER]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_rule_has_get_a_warning_and_are_matched_all_the_same() {
    for bench in Bench::both() {
        let block = |domain: &str, key: &str| {
            let entries = json!([{ "key": key, "value": "m1" }]);
            json!({ "domain": domain, "entries": entries, "action": "block", "for": "1h" })
        };
        for query in ["?dry_run=1", ""] {
            let warnings =
                |domain, key| bench.api.post(query, &block(domain, key)).1["warnings"].clone();
            let domain = "unknown domain 'shpo': did you mean 'shop'?";
            assert_eq!(warnings("shpo", "user"), json!([domain]));
            assert_eq!(warnings("shop", "usr"), json!(["unknown key 'usr': did you mean 'user'?"]));
            assert_eq!(warnings("shop", "user"), json!([]));
        }
        assert_eq!(codes(bench.weir.grpc, "usr", "m1").await, [OVER]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_posted_control_gets_an_id_of_what_it_does() {
    for bench in Bench::both() {
        let (api, grpc) = (&bench.api, bench.weir.grpc);
        let body = |reason: &str| {
            let block = json!({ "action": "block", "for": "1h", "reason": reason, "by": "ann" });
            of_user("m1", &block)
        };
        let (status, dry) = api.post("?dry_run=1", &body(""));
        let id = dry["control"]["id"].as_str().unwrap();
        assert!(status == 200 && id.starts_with("block-") && id.len() == 18, "{dry}");
        assert_eq!(api.good("/v1/controls")["controls"], json!([]));
        assert_eq!(api.post("", &body("first")).1["control"]["id"], id);
        assert_eq!(codes(grpc, "user", "m1").await, [OVER]);
        // The same again replaces it, another action does not.
        let (_, again) = api.post("", &body("second"));
        assert_eq!((&again["control"]["id"], &again["warnings"]), (&json!(id), &json!([])));
        let (_, allow) = api.post("", &of_user("m1", &json!({ "action": "allow" })));
        assert_ne!(allow["control"]["id"], id);
        let controls = api.good("/v1/controls")["controls"].clone();
        let reasons: Vec<_> =
            controls.as_array().unwrap().iter().map(|it| it["reason"].clone()).collect();
        assert_eq!(reasons, ["second", ""]);
        let record = &api.good("/v1/audit")["records"][2];
        assert_eq!((&record["who"], &record["action"]), (&json!("ann"), &json!("put control")));
        assert_eq!(record["subject"], format!("{id}: block shop user=m1"));

        let all = json!({ "domain": "shop", "entries": [], "action": "block" });
        assert_eq!((api.post("", &all).0, api.post("?force=1", &all).0), (409, 200));
        assert_eq!(api.post("", &json!({ "domain": "shop" })).0, 400);
        assert_eq!(api.post("?id=x", &body("")).0, 400);
        let form = ControlApi::new(&bench.weir).with("content-type", "text/plain");
        assert_eq!(form.post("", &body("")).0, 415);
    }
}

#[test]
fn what_is_invalid_has_a_status_and_help() {
    let bench = Bench::start(None);
    let api = &bench.api;
    let block = of_user("ann", &json!({ "action": "block" }));
    for (id, body, status) in [
        ("b", json!({ "domain": "shop" }), 400),
        ("b", of_user("ann", &json!({ "action": "blok" })), 400),
        ("b", of_user("ann", &json!({ "action": "block", "four": "1h" })), 400),
        ("b", of_user("ann", &json!({ "action": "block", "for": "soon" })), 400),
        ("b", of_user("ann", &json!({ "action": "block", "until": "1999-01-01T00:00:00Z" })), 400),
        ("b", of_user("ann", &json!({ "action": "limit", "limit": { "n": 1, "name": "x" } })), 400),
        ("b", json!([1]), 400),
        ("a%20b", block.clone(), 400),
        ("b?dry-run=1", block.clone(), 400),
        ("b?force=2", block.clone(), 400),
        ("b", json!("x".repeat(200_000)), 413),
    ] {
        assert_eq!(api.put(id, &body).0, status, "{id}: {body:.100}");
    }
    let form = ControlApi::new(&bench.weir).with("content-type", "text/plain");
    assert_eq!(form.put("b", &block).0, 415);
    assert_eq!(form.delete("/v1/controls/b").0, 415);
    assert_eq!(form.delete("/v1/state?domain=shop&descriptor=user=ann").0, 415);
    assert_eq!(api.get("/v1/nothing").0, 404);
    assert_eq!(api.good("/v1/controls")["controls"], json!([]));
    assert_eq!(api.good("/v1/audit")["records"], json!([]));
}

#[test]
fn what_is_not_documented_is_an_error() {
    let document = OpenApi::read();
    let check = |uri: &str, status, body: Value| document.check("GET", uri, status, &body);
    let good = json!({ "controls": [], "share_error": null });
    assert_eq!(check("/v1/controls", 200, good.clone()), Ok(()));
    for (uri, status, body) in [
        ("/v1/controls", 418, good),
        ("/v1/controls", 200, json!({ "controls": [] })),
        ("/v1/controls", 200, json!({ "controls": {}, "share_error": null })),
        ("/v1/controls", 200, json!({ "controls": [{ "id": "a" }], "share_error": null })),
        ("/v1/controls", 200, json!({ "controls": [], "share_error": null, "other": 1 })),
        ("/v1/controls", 200, json!({ "controls": [], "share_error": 1 })),
        ("/v1/nothing", 200, json!({})),
        ("/v1/nothing", 404, json!({ "error": "a" })),
    ] {
        assert!(check(uri, status, body.clone()).is_err(), "{uri}: {body}");
    }
}

#[test]
fn rules_and_the_document_are_served() {
    let bench = Bench::start(None);
    let rules = bench.api.good("/v1/rules");
    assert_eq!(rules, http::get(bench.weir.debug, "/rules").json());
    assert_eq!(rules["rules"].as_array().unwrap().len(), 4);
    assert_eq!(bench.api.good("/v1/openapi.json")["openapi"], "3.1.0");
}
