//! `/v1/status`: what operators see while it happens. Every answer is checked against docs/reference/openapi.json.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::control_api::{ControlApi, of_user};
use crate::support::redis::Server;
use crate::support::weir::{Weir, serving};
use crate::support::{PATIENCE, http, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
";

/// A client that asks again and again.
struct Watch {
    api: ControlApi,
    /// The number of the newest change.
    newest: u64,
    /// Changes that no one has waited for yet.
    changes: Vec<Value>,
}

impl Watch {
    fn start(weir: &Weir) -> Watch {
        let mut watch = Watch { api: ControlApi::new(weir), newest: 0, changes: Vec::new() };
        watch.ask();
        watch.changes.clear();
        watch
    }

    /// Returns the status of now, and keeps the changes.
    fn ask(&mut self) -> Value {
        let mut answer = self.api.good(&format!("/v1/status?after={}", self.newest));
        self.newest = answer["newest"].as_u64().unwrap();
        self.changes.append(answer["changes"].as_array_mut().unwrap());
        answer["status"].take()
    }

    /// Returns the first status that is wanted.
    fn status(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        wait_for("a status", || Some(self.ask()).filter(|status| wanted(status)))
    }

    /// Returns the first change of this kind that is wanted, and forgets those before it.
    fn until(&mut self, event: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let is_wanted = |change: &Value| change["event"] == event && wanted(change);
            if let Some(found) = self.changes.iter().position(is_wanted) {
                return self.changes.drain(..=found).next_back().unwrap();
            }
            assert!(Instant::now() < deadline, "no {event}: {:?}", self.changes);
            std::thread::sleep(Duration::from_millis(20));
            self.ask();
        }
    }
}

/// Asks for a decision about a user. Returns the status of HTTP.
fn hit(weir: &Weir, user: &str) -> u16 {
    let entry = json!({ "key": "user", "value": user });
    hit_with(weir, &json!([entry]))
}

fn hit_with(weir: &Weir, entries: &Value) -> u16 {
    let body = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
    http::post(weir.http, "/json", body.to_string()).status
}

#[test]
fn a_status_has_the_keys_of_all_replicas_that_share_their_lists() {
    let redis = Server::start();
    let setup = || serving(RULES).env("REDIS_URL", redis.addr()).env("WEIR__TOP__SHARE", "true");
    let (a, b) = (setup().start(), setup().start());
    for weir in [&a, &b, &b] {
        hit(weir, "ann");
    }
    for weir in [&a, &b] {
        let has_all = |status: &Value| {
            let top = &status["top"];
            (&top["hits"]["replicas"], &top["hits"]["rows"][0]["count"]) == (&json!(2), &json!(3))
                && (&top["denied"]["scope"], &top["denied"]["total"]) == (&json!("all"), &json!(2))
        };
        Watch::start(weir).status(has_all);
    }
}

#[test]
fn operators_see_denials_reloads_controls_and_the_store() {
    let mut redis = Server::start();
    let address = format!("127.0.0.1:{}", redis.port());
    let setup = serving(RULES).env("REDIS_URL", address);
    let weir = setup.env("WEIR__TOP__REDACT", "token").start();
    let mut events = Watch::start(&weir);

    assert_eq!(hit(&weir, "<img>"), 200);
    assert_eq!(hit(&weir, "<img>"), 429);
    let denial = events.until("denial", |_| true);
    assert_eq!(denial["entries"], json!([{ "key": "user", "value": "<img>" }]));
    assert_eq!((&denial["domain"], &denial["rule"]), (&json!("shop"), &json!("user")));
    assert_eq!((&denial["limit"], &denial["control"]), (&json!("1 per year"), &Value::Null));
    let status = events.status(|status| status["requests"]["over_limit"] == 1);
    assert_eq!(status["rules"]["rows"][0]["over_limit"], 1, "{status}");
    assert_eq!(status["top"]["denied"]["rows"][0]["entries"], denial["entries"], "{status}");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));

    let more =
        format!("{RULES}  - key: token\n    rate_limit: {{ unit: day, requests_per_unit: 0 }}\n");
    std::fs::write(weir.path("rules.yaml"), &more).unwrap();
    let reload = events.until("reload", |_| true);
    assert_eq!((&reload["ok"], &reload["summary"]["rules"]), (&json!(true), &json!(2)));
    assert_eq!(reload["changes"]["list"], json!(["1 rule added (shop.token)"]));
    // One a second is a sample.
    let denial = wait_for("a denial of the token", || {
        assert_eq!(hit_with(&weir, &json!([{ "key": "token", "value": "s3cret" }])), 429);
        events.ask();
        let has_token = |change: &&Value| change["entries"][0]["key"] == "token";
        events.changes.iter().find(has_token).cloned()
    });
    assert!(denial["entries"][0]["value"].as_str().unwrap().starts_with("hash:"), "{denial}");
    std::fs::write(weir.path("rules.yaml"), "domain: shop\nuint: day\n").unwrap();
    let refusal = events.until("reload", |reload| reload["ok"] == false);
    assert!(refusal["error"].as_str().unwrap().contains("uint"), "{refusal}");
    let problems = events.until("problems", |_| true)["problems"].clone();
    let problem = &problems[0];
    assert_eq!((&problem["kind"], &problem["count"]), (&json!("rules"), &json!(1)), "{problem}");
    assert_eq!((&problem["line"], &problem["column"]), (&json!(2), &json!(1)), "{problem}");
    assert!(problem["file"].as_str().unwrap().ends_with("rules.yaml"), "{problem}");
    let text = problem["text"].as_str().unwrap();
    assert!(
        text.starts_with("new rules are rejected, the previous ones stay active: config error, "),
        "{problem}"
    );
    events.status(|status| status["problems"] == problems);
    let since = problem["since"].clone();

    let before = events.status(|_| true)["controls"]["version"].clone();
    let block = of_user("ann", &json!({ "action": "block", "by": "bob" }));
    events.api.put_good("no-ann", &block);
    let put = events.until("operator", |_| true);
    let members = ["who", "action", "subject"].map(|name| put[name].as_str().unwrap());
    assert_eq!(members, ["bob", "put control", "no-ann: block shop user=ann"]);
    let of_token = json!({
        "domain": "shop", "entries": [{ "key": "token", "value": "s3cret" }], "action": "allow",
    });
    events.api.put_good("token", &of_token);
    let put = events.until("operator", |_| true);
    assert!(put["subject"].as_str().unwrap().starts_with("token: allow shop token=hash:"), "{put}");
    events.status(|status| status["controls"]["version"] != before);
    let blocked = wait_for("a denial of the block", || {
        assert_eq!(hit(&weir, "ann"), 429);
        events.ask();
        events.changes.iter().find(|change| change["control"] == "no-ann").cloned()
    });
    assert_eq!(blocked["limit"], Value::Null);

    redis.kill();
    let down = events.until("store", |_| true);
    assert_eq!((&down["up"], down["error"].is_string()), (&json!(false), true), "{down}");
    let kinds = |data: &Value| -> Vec<String> {
        let problems = data["problems"].as_array().unwrap().iter();
        problems.map(|problem| problem["kind"].as_str().unwrap().to_owned()).collect()
    };
    let all = events.until("problems", |data| kinds(data) == ["store", "controls", "rules"]);
    assert_eq!(all["problems"][2]["since"], since);
    let [store, controls, _] = &all["problems"].as_array().unwrap()[..] else { panic!("{all}") };
    let text = store["text"].as_str().unwrap();
    assert!(text.starts_with("Redis does not answer: "), "{all}");
    assert_eq!(store["severity"], "critical", "{all}");
    let text = controls["text"].as_str().unwrap();
    assert!(text.contains("changes apply to this replica only"), "{all}");
    let status = http::get(weir.debug, "/status").json();
    assert_eq!(status["problems"][0]["kind"], "store", "{status}");
    wait_for("the history has them", || {
        let history = http::get_with(weir.debug, "/v1/history", &[("host", "localhost")]).json();
        let recorded = history["events"].as_array().unwrap().iter();
        let recorded = recorded.filter(|event| event["event"] == "problems").map(kinds);
        recorded.collect::<Vec<_>>().contains(&kinds(&all)).then_some(())
    });
    redis.restart();
    assert_eq!(events.until("store", |_| true)["up"], true);
    events.status(|status| status["store"]["connected"] == true);
    std::fs::write(weir.path("rules.yaml"), RULES).unwrap();
    events.until("problems", |data| kinds(data).is_empty());
}

#[test]
fn a_status_that_is_known_has_no_body_until_something_is_counted() {
    let weir = serving(RULES).start();
    let ask = |tag: &str| {
        let headers = [("host", "localhost"), ("if-none-match", tag)];
        http::get_with(weir.debug, "/v1/status", &headers)
    };
    let first = ask("");
    assert_eq!((first.status, first.header("cache-control")), (200, Some("no-store")));
    let tag = first.header("etag").unwrap().to_owned();
    let again = ask(&tag);
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    hit(&weir, "ann");
    wait_for("another status", || (ask(&tag).status == 200).then_some(()));
}
