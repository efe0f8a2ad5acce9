//! What a key has counted, why, and which keys count most.

use serde_json::{Value, json};

use super::{Bench, OK, OVER, codes};
use crate::support::api::{ask, request};
use crate::support::control_api::of_user;

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
        let near = api.good("/v1/explain?domain=shop&descriptor=user=ann,x=1&near=1");
        let near = near["descriptors"][0]["near_misses"].as_array().unwrap();
        assert_eq!(near.last().unwrap()["kind"], "first_entry", "{near:?}");
        // One domain alone has rules.
        let named = api.good("/v1/explain?descriptor=user=ann");
        assert_eq!(named["domain"], "shop");
        let other = api.good("/v1/explain?domain=other&descriptor=user=ann");
        assert_eq!(other["descriptors"][0]["rule"], Value::Null);
        for bad in [
            "domain=shop",
            "domain=shop&descriptor=",
            "domain=shop&descriptor=user",
            "domain=&descriptor=a=b",
        ] {
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
    let list = api.good("/v1/top");
    assert_eq!((&list["by"], &list["window"]), (&json!("hits"), &json!("1h")));
    for query in ["window=1m", "window=start", "domain=shop", "domain=shop&rule=user"] {
        assert_eq!(rows(&format!("hits&{query}")).len(), 2, "{query}");
    }
    assert_eq!(rows("would_be_denied"), []);
    let (status, error) = api.get("/v1/top?domain=shop&rule=usr");
    assert_eq!((status, &error["help"]), (404, &json!("did you mean 'user'?")));

    let block = |user: &str| of_user(user, &json!({ "action": "block" }));
    let matched = |written: Value| {
        let rows = written["matched"].as_array().unwrap().iter();
        rows.map(|row| row["entries"][0]["value"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(matched(api.put_good("b?dry_run=1", &block("m2"))), ["m2"]);
    assert_eq!(matched(api.put_good("b?dry_run=1", &block("m*"))), ["m1", "m2"]);
    assert!(matched(api.put_good("b?dry_run=1", &block("m3"))).is_empty());
}
