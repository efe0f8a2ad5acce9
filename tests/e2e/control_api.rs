//! `/v1`: what operators see and change, with counters in memory and in Redis. Every answer is checked
//! against docs/openapi.json.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;

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
    let setup = serving(RULES)
        .env("WEIR__STORE__BUDGET", "10s")
        .env("WEIR__STORE__REDIS__SLOW_AFTER", "10s");
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
async fn the_state_of_a_key_is_shown_and_reset() {
    for bench in Bench::both() {
        let (api, grpc) = (&bench.api, bench.weir.grpc);
        let uri = "/v1/state?domain=shop&descriptor=user=ann";
        let unused = api.good(uri);
        assert_eq!(
            (&unused["rule"]["name"], &unused["control"]),
            (&json!("per-user"), &Value::Null)
        );
        assert_eq!(
            (&unused["limits"][0]["used"], &unused["limits"][0]["remaining"]),
            (&json!(0), &json!(2))
        );
        assert_eq!(codes(grpc, "user", "ann").await, [OK, OK, OVER]);
        let used = api.good(uri);
        let limit = &used["limits"][0];
        assert_eq!((&limit["used"], &limit["remaining"]), (&json!(3), &json!(0)));
        assert!(limit["retry_ms"].as_u64().unwrap() > 0, "{limit}");

        let (status, reset) = api.delete(uri);
        assert_eq!((status, &reset["reset"], &reset["key"]), (200, &json!(true), &used["key"]));
        assert_eq!(codes(grpc, "user", "ann").await, [OK, OK, OVER]);

        // A value with what separates entries.
        let entries = [("user", "a,b\\c=d e")];
        ask(grpc, request("shop", &entries)).await.unwrap();
        let state = api.good(r"/v1/state?domain=shop&descriptor=user=a%5C,b%5C%5Cc=d+e");
        assert_eq!(state["entries"][0]["value"], entries[0].1);
        assert_eq!(state["limits"][0]["used"], 1);

        let free = api.good("/v1/state?domain=shop&descriptor=free=x");
        assert_eq!((&free["limits"], &free["key"]), (&json!([]), &Value::Null));
        for nothing in ["domain=shop&descriptor=other=x", "domain=other&descriptor=user=ann"] {
            let uri = format!("/v1/state?{nothing}");
            assert_eq!((api.get(&uri).0, api.delete(&uri).0), (404, 404), "{uri}");
        }
        assert_eq!(api.delete("/v1/state?domain=shop&descriptor=free=x").0, 404);
        let block = json!({ "domain": "other", "entries": [{ "key": "ip", "value": "1" }], "action": "block" });
        api.put_good("b", &block);
        let blocked = api.good("/v1/state?domain=other&descriptor=ip=1");
        assert_eq!((&blocked["control"]["id"], &blocked["rule"]), (&json!("b"), &Value::Null));

        assert_eq!(codes(grpc, "job", "j").await, [OK]);
        ask(grpc, request("shop", &[("job", "j"), ("id", "1")])).await.unwrap();
        let job = api.good("/v1/state?domain=shop&descriptor=job=j,id=1");
        assert_eq!(job["holds"]["hits"], 1, "{job}");
        if let Some(redis) = &bench.redis {
            redis.stop();
            assert_eq!((api.get(uri).0, api.delete(uri).0), (503, 503));
            redis.go_on();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_of_the_last_spans_are_counted() {
    for bench in Bench::both() {
        let (api, grpc) = (&bench.api, bench.weir.grpc);
        assert_eq!(codes(grpc, "api", "x").await, [OK; 3]);
        let count = api.good("/v1/count?domain=shop&descriptor=api=x&span=1h,7d,8d");
        let counts = &count["counts"];
        for (i, span) in [3_600_000, 604_800_000].into_iter().enumerate() {
            let count = &counts[i];
            assert_eq!((&count["span_ms"], &count["count"]), (&json!(span), &json!(3)));
            assert_eq!(
                (&count["max_late_ms"], &count["algorithm"]),
                (&json!(0), &json!("sliding_log"))
            );
        }
        assert!(counts[2]["error"].as_str().unwrap().contains("longer than"), "{counts}");
        let (status, error) = api.get("/v1/count?domain=shop&descriptor=api=x&span=8d,0");
        assert!(
            status == 400 && error["error"].as_str().unwrap().contains("longer than"),
            "{error}"
        );
        let (status, error) = api.get("/v1/count?domain=shop&descriptor=user=x&span=1h");
        assert!(
            status == 400 && error["error"].as_str().unwrap().contains("sliding_log"),
            "{error}"
        );
        assert_eq!(api.get("/v1/count?domain=shop&descriptor=other=x&span=1h").0, 404);
        if let Some(redis) = &bench.redis {
            redis.stop();
            assert_eq!(api.get("/v1/count?domain=shop&descriptor=api=x&span=1h").0, 503);
            redis.go_on();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_explained_with_its_controls_and_counts() {
    for bench in Bench::both() {
        let (api, grpc) = (&bench.api, bench.weir.grpc);
        assert_eq!(codes(grpc, "user", "ann").await, [OK]);
        api.put_good("l", &of_user("ann", &json!({ "action": "limit", "limit": { "n": 7 } })));
        let explained = api.good("/v1/explain?domain=shop&descriptor=user=ann&descriptor=usr=ann");
        let [first, second] = &explained["descriptors"].as_array().unwrap()[..] else {
            panic!("{explained}");
        };
        assert_eq!(
            (&first["rule"]["name"], &first["control"]["id"]),
            (&json!("per-user"), &json!("l"))
        );
        let limit = &first["state"]["limits"][0];
        assert_eq!((&limit["used"], &limit["n"]), (&json!(1), &json!(7)));
        assert_eq!((&second["matched"], &second["state"]), (&json!(false), &Value::Null));
        assert!(!second["near_misses"].as_array().unwrap().is_empty(), "{second}");
        let other = api.good("/v1/explain?domain=other&descriptor=user=ann");
        assert_eq!(other["descriptors"][0]["rule"], Value::Null);
        for bad in
            ["domain=shop", "descriptor=a=b", "domain=shop&descriptor=", "domain=&descriptor=a"]
        {
            assert_eq!(api.get(&format!("/v1/explain?{bad}")).0, 400, "{bad}");
        }
        if let Some(redis) = &bench.redis {
            redis.stop();
            let explained = api.good("/v1/explain?domain=shop&descriptor=user=ann");
            assert!(explained["descriptors"][0]["state"]["error"].is_string(), "{explained}");
            redis.go_on();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_keys_are_listed_and_shown_with_a_control_that_matches_them() {
    let bench = Bench::start(None);
    let (api, grpc) = (&bench.api, bench.weir.grpc);
    assert_eq!(codes(grpc, "user", "m1").await, [OK, OK, OVER, OVER]);
    assert_eq!(codes(grpc, "user", "m2").await, [OK, OK]);
    let rows = |by: &str| -> Vec<(String, u64)> {
        let list = api.good(&format!("/v1/top?by={by}"));
        let row = |row: &Value| {
            (
                row["entries"][0]["value"].as_str().unwrap().to_owned(),
                row["count"].as_u64().unwrap(),
            )
        };
        list["rows"].as_array().unwrap().iter().map(row).collect()
    };
    let row = |value: &str, count| (value.to_owned(), count);
    assert_eq!(rows("hits"), [row("m1", 4), row("m2", 2)]);
    assert_eq!(rows("denied"), [row("m1", 2)]);
    assert_eq!(rows("near").len(), 2);
    assert_eq!(rows("hits&limit=1"), [row("m1", 4)]);
    assert_eq!(api.good("/v1/top")["by"], "hits");

    let block = |user: &str| of_user(user, &json!({ "action": "block" }));
    let matched = |written: Value| {
        let rows = written["matched"].as_array().unwrap().iter();
        rows.map(|row| row["entries"][0]["value"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(matched(api.put_good("b?dry_run=1", &block("m2"))), ["m2"]);
    assert_eq!(matched(api.put_good("b?dry_run=1", &block("m*"))), ["m1", "m2"]);
    assert!(matched(api.put_good("b?dry_run=1", &block("m3"))).is_empty());
    let off = setup(None).env("WEIR__TOP__ENTRIES", "0").start();
    let api = ControlApi::new(&off);
    assert_eq!(api.get("/v1/top").0, 404);
    assert_eq!(api.put_good("b", &block("m1"))["matched"], json!([]));
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

#[test]
fn writes_are_logged_with_who_and_from_where() {
    let mut bench = Bench::start(None);
    let api = &bench.api;
    let block = |by: &str| of_user("ann", &json!({ "action": "block", "by": by }));
    api.put_good("b", &block("ann\nfake"));
    api.delete("/v1/controls/b");
    api.delete("/v1/state?domain=shop&descriptor=user=ann");
    api.put_good("b", &block(""));
    api.delete("/v1/controls/b?by=bob");
    api.delete("/v1/state?domain=shop&descriptor=user=ann&by=bob");
    let host = [("host", "localhost")];
    let level = http::ask(bench.weir.debug, "PUT", "/log_level?level=debug", &host, b"").unwrap();
    assert_eq!(level.status, 200);
    let records = &api.good("/v1/audit")["records"];
    let shown =
        |i: usize| ["who", "action", "subject"].map(|name| records[i][name].as_str().unwrap());
    assert_eq!(shown(0), ["loopback", "set log level", "info to debug"]);
    assert_eq!(shown(1), ["bob", "reset state", "shop user=ann"]);
    assert_eq!(shown(2), ["bob", "delete control", "b: block shop user=ann"]);
    assert_eq!(shown(3), ["loopback", "put control", "b: block shop user=ann"]);
    assert_eq!(shown(4), ["loopback", "reset state", "shop user=ann"]);
    assert_eq!(shown(5), ["loopback", "delete control", "b: block shop user=ann"]);
    assert_eq!(shown(6), ["ann\nfake", "put control", "b: block shop user=ann"]);
    assert!(records[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{records}");
    let line = bench.weir.until_said("operator change who=\"ann\\nfake\"").unwrap();
    assert!(line.contains("action=\"put control\""), "{line}");
}

#[test]
fn a_write_that_waits_for_redis_delays_no_other_request() {
    let bench = Bench::start(Some(Server::start()));
    let redis = bench.redis.as_ref().unwrap();
    redis.stop();
    wait_for("an answer while a write waits", || {
        let api = ControlApi::new(&bench.weir);
        let block = of_user("ann", &json!({ "action": "block" }));
        let write = thread::spawn(move || api.put_good("b", &block));
        wait_for("the write is made", || {
            (bench.api.get("/v1/controls/b").0 == 200 || write.is_finished()).then_some(())
        });
        assert_eq!(http::get(bench.weir.debug, "/livez").status, 200);
        let was_waiting = !write.is_finished();
        let written = write.join().unwrap();
        assert_eq!((&written["shared"], &written["kept"]), (&json!(false), &json!(false)));
        bench.api.delete("/v1/controls/b");
        was_waiting.then_some(())
    });
    assert!(bench.api.good("/v1/controls")["share_error"].is_string());
    redis.go_on();
}

#[test]
fn a_write_is_finished_and_recorded_if_its_client_disconnects() {
    let bench = Bench::start(Some(Server::start()));
    let redis = bench.redis.as_ref().unwrap();
    redis.stop();
    let body = of_user("ann", &json!({ "action": "block" })).to_string();
    let head =
        "PUT /v1/controls/b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut client = TcpStream::connect(bench.weir.debug).unwrap();
    write!(client, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    wait_for("the write is made", || (bench.api.get("/v1/controls/b").0 == 200).then_some(()));
    drop(client);
    wait_for("the write is recorded", || {
        let records = &bench.api.good("/v1/audit")["records"];
        (records[0]["action"] == "put control").then_some(())
    });
    redis.go_on();
}
