//! Subscribers and what they receive, in a runtime whose time is simulated.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time;

use super::traffic::Traffic;
use super::*;
use weir_common::clock::ManualClock;
use weir_limit::SECOND;
use weir_limiter::controls::{ActiveRules, ControlClock, Draft, Options, PutOptions};
use weir_limiter::top::{self, Top};
use weir_limiter::{Descriptor, Holds, Request};
use weir_rules::RuleSet;
use weir_rules::source::RuleFile;
use weir_store::memory::MemoryStore;
use weir_store::{Answers, Batch, Store};

const RULES: &str = "domain: d
descriptors:
  - {key: user, rate_limit: {name: per-user, unit: day, requests_per_unit: 1}}
";

/// A memory store that may be out of reach.
#[derive(Debug)]
struct FakeStore {
    inner: MemoryStore<Arc<ManualClock>>,
    is_connected: AtomicBool,
}

impl Store for FakeStore {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        self.inner.charge(batch, answers).await;
    }

    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        self.inner.try_charge(batch, answers)
    }
}

impl Operations for FakeStore {
    fn is_connected(&self) -> bool {
        self.is_connected.load(Relaxed)
    }
}

struct Bench {
    events: Arc<Events<FakeStore>>,
    close: watch::Sender<bool>,
    replace_token: watch::Sender<u64>,
}

fn file(text: &str) -> Vec<RuleFile> {
    vec![RuleFile { name: "rules.yaml".into(), text: text.into() }]
}

fn bench() -> Bench {
    let clock = Arc::new(ManualClock::new(1_700_000_000 * SECOND));
    let store = FakeStore {
        inner: MemoryStore::new(clock.clone(), 1_000),
        is_connected: AtomicBool::new(true),
    };
    let top =
        top::Options { entries: 100, redact: vec!["token".to_owned()], threads: 1, share: false };
    let top = Arc::new(Top::new(top, clock.clone()));
    let redaction = top.redaction().clone();
    let limiter = Limiter::new(store, weir_limiter::Options::default()).with_top(Some(top));
    let limiter = limiter.with_redaction(redaction);
    let rules = Arc::new(ActiveRules::new(ControlClock::new(clock), u64::MAX));
    let controls = Arc::new(Controls::new(rules.clone(), Options::default(), || ()));
    let health = Arc::new(Health::new(false, false));
    let options = weir_rules::Options::default();
    let loader = Arc::new(Loader::new(rules.clone(), options, health.clone()));
    loader.load(file(RULES), Vec::new()).unwrap();
    let (limiter, started) = (Arc::new(limiter), Instant::now());
    let identities = Arc::default();
    let sources = EventSources { limiter, rules, controls, loader, health, identities, started };
    let (close, closed) = watch::channel(false);
    let (replace_token, replaced_tokens) = watch::channel(0);
    let ends = Ends { closed, replaced_tokens };
    Bench { events: Arc::new(Events::new(Arc::new(sources), 2, ends)), close, replace_token }
}

impl Bench {
    fn subscribe(&self) -> Subscriber {
        self.events.subscribe().expect("room")
    }

    fn hit(&self, user: &str) {
        let EventSources { limiter, rules, .. } = &*self.events.sources;
        let entries = [("user", user)];
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let (rules, budget) = (rules.load(), Duration::from_secs(1));
        let (rules, holds) = (rules.as_deref(), &mut Holds::default());
        let decided = limiter.decide_now(rules, &request, budget, holds, |_| ());
        assert!(decided.is_some());
    }

    /// Tries to load rules, and lets the publisher notice.
    async fn load(&self, text: &str) {
        let _ = self.events.sources.loader.load(file(text), Vec::new());
        yield_now().await;
    }
}

/// Returns the name and the data of the next event.
async fn next(subscriber: &mut Subscriber) -> (String, Value) {
    let frame = subscriber.next().await.expect("an event");
    let text = std::str::from_utf8(&frame).unwrap();
    let (name, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
    let data = data.strip_suffix("\n\n").unwrap();
    assert!(!name.contains(['\n', '\r']) && !data.contains(['\n', '\r']), "{text}");
    (name.to_owned(), serde_json::from_str(data).unwrap())
}

/// Returns the data of the next event, which has this name.
async fn event(subscriber: &mut Subscriber, wanted: &str) -> Value {
    let (name, data) = next(subscriber).await;
    assert_eq!(name, wanted, "{data}");
    data
}

#[test]
fn texts_of_clients_stay_within_their_line() {
    let frame = frame("x", &json!({ "text": "a\n\nevent: b\r\n<img>\u{2028}\0" }));
    let wanted = "event: x\ndata: {\"text\":\"a\\n\\nevent: b\\r\\n<img>\u{2028}\\u0000\"}\n\n";
    assert_eq!(frame, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_status_comes_at_once_and_then_every_second() {
    let bench = bench();
    let mut subscriber = bench.subscribe();
    let started = time::Instant::now();
    let status = event(&mut subscriber, "status").await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(status["at"], "2023-11-14T22:13:20Z");
    assert_eq!(status["requests"]["over_limit"], 0);
    assert_eq!(status["controls"], json!({ "count": 0, "share_error": null }));
    assert_eq!(status["store"]["connected"], true);
    assert_eq!(status["redacted_keys"], json!(["token"]));
    let wanted = json!([{
        "domain": "d", "rule": "user", "hits": 0, "over_limit": 0, "near_limit": 0,
        "shadow_mode": 0,
    }]);
    assert_eq!((&status["rules"]["rows"], &status["rules"]["omitted"]), (&wanted, &json!(0)));

    // One who joins others does not wait for the next.
    let mut other = bench.subscribe();
    assert_eq!(event(&mut other, "status").await, status);
    assert_eq!(started.elapsed(), Duration::ZERO);

    bench.hit("ann");
    let next = event(&mut subscriber, "status").await;
    assert_eq!(started.elapsed(), Duration::from_secs(1));
    assert_eq!(next["requests"]["ok"], 1);
    assert_eq!(next["rules"]["rows"][0]["hits"], 1);
    assert_eq!(next["top"]["hits"]["rows"][0]["entries"][0]["value"], "ann");
    assert_eq!(next["top"]["hits"]["window"], "1h");
    assert_eq!(next["top"]["would_be_denied"]["by"], "would_be_denied");
    assert_eq!(event(&mut other, "status").await, next);
}

#[tokio::test(start_paused = true)]
async fn denials_reloads_controls_and_the_store_are_events() {
    let bench = bench();
    let sources = &bench.events.sources;
    let mut subscriber = bench.subscribe();
    event(&mut subscriber, "status").await;
    bench.hit("ann\n<img>");
    bench.hit("ann\n<img>");
    let denial = event(&mut subscriber, "denial").await;
    assert_eq!(denial["entries"], json!([{ "key": "user", "value": "ann\n<img>" }]));
    assert_eq!((&denial["rule"], &denial["limit"]), (&json!("user"), &json!("1 per day")));
    assert_eq!(denial["at"], "2023-11-14T22:13:20Z");

    bench.load("domain: d\n").await;
    let reload = event(&mut subscriber, "reload").await;
    let summary = json!({ "files": 1, "domains": 1, "rules": 0 });
    assert_eq!((&reload["ok"], &reload["summary"]), (&json!(true), &summary));
    assert_eq!(reload["changes"]["list"], json!(["d.user removed"]));
    bench.load("domain: d\nuint: day\n").await;
    let reload = event(&mut subscriber, "reload").await;
    assert_eq!(reload["changes"], Value::Null);
    assert_eq!((&reload["what"], &reload["ok"]), (&json!("rules"), &json!(false)));
    assert!(reload["error"].as_str().unwrap().contains("uint"), "{reload}");

    let draft = br#"{"domain":"d","entries":[{"key":"user","value":"bob"}],"action":"block"}"#;
    let draft = Draft::read(draft).unwrap();
    let put = sources.controls.put(Some("id"), draft, PutOptions::default());
    put.await.unwrap();
    event(&mut subscriber, "controls").await;

    let store = sources.limiter.store();
    store.is_connected.store(false, Relaxed);
    let status = event(&mut subscriber, "status").await;
    assert_eq!(
        (&status["store"]["connected"], &status["controls"]["count"]),
        (&json!(false), &json!(1))
    );
    let problem = json!({
        "kind": "rules",
        "text": "new rules are rejected, the previous ones stay active: config error, unknown key 'uint'",
        "file": "rules.yaml", "line": 2, "column": 1, "count": 1,
    });
    let mut first = status["problems"][0].clone();
    assert!(first.as_object_mut().unwrap().remove("since").unwrap().is_string(), "{status}");
    assert_eq!((first, status["problems"][1].is_null()), (problem, true));
    assert_eq!(event(&mut subscriber, "store").await["up"], false);
    let problems = event(&mut subscriber, "problems").await;
    assert_eq!(problems["problems"], status["problems"]);
    store.is_connected.store(true, Relaxed);
    event(&mut subscriber, "status").await;
    assert_eq!(event(&mut subscriber, "store").await["up"], true);
}

#[tokio::test(start_paused = true)]
async fn one_who_reads_slowly_misses_old_events_and_is_told_how_many() {
    let bench = bench();
    let (mut slow, mut fast) = (bench.subscribe(), bench.subscribe());
    event(&mut fast, "status").await;
    for round in 1..=2 {
        for _ in 0..MAX_WAITING + 44 {
            bench.load("domain: d\n").await;
            event(&mut fast, "reload").await;
        }
        if round == 1 {
            event(&mut slow, "status").await;
        }
        let dropped = event(&mut slow, "dropped").await;
        assert_eq!(dropped["dropped"], 44 * round);
        for _ in 0..MAX_WAITING {
            event(&mut slow, "reload").await;
        }
    }
    // Of the status only the newest waits.
    time::sleep(Duration::from_millis(9_500)).await;
    let status = event(&mut slow, "status").await;
    assert_eq!(next(&mut fast).await, ("status".to_owned(), status));
    let before = time::Instant::now();
    event(&mut slow, "status").await;
    assert!(before.elapsed() > Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn subscribers_are_bounded_and_nothing_runs_without_one() {
    let bench = bench();
    let idle = Arc::strong_count(&bench.events.sources);
    let (one, two) = (bench.subscribe(), bench.subscribe());
    let ask = || answer(State(bench.events.clone()), None, Uri::from_static("/v1/events"));
    let refused = ask().await.unwrap_err();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.error, "there are 2 subscribers already");

    drop(one);
    let accepted = ask().await.unwrap();
    assert_eq!(accepted.status(), StatusCode::OK);
    assert_eq!(accepted.headers()[CONTENT_TYPE], "text/event-stream");
    drop((two, accepted));
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&bench.events.sources), idle);
    assert!(bench.events.publisher.lock().upgrade().is_none());

    // It starts again.
    let mut again = bench.subscribe();
    event(&mut again, "status").await;
    event(&mut again, "status").await;
}

#[tokio::test(start_paused = true)]
async fn events_end_when_the_listeners_close() {
    let bench = bench();
    let mut subscriber = bench.subscribe();
    event(&mut subscriber, "status").await;
    bench.load("domain: d\n").await;
    bench.close.send_replace(true);
    assert_eq!(subscriber.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn events_end_when_a_token_is_replaced() {
    let bench = bench();
    let mut subscriber = bench.subscribe();
    event(&mut subscriber, "status").await;
    bench.replace_token.send_replace(1);
    assert_eq!(subscriber.next().await, None);
    // One that comes by the new token stays.
    event(&mut bench.subscribe(), "status").await;
}

#[test]
fn the_rules_with_the_most_hits_of_late_come_first() {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for rule in 0..60 {
        text += &format!("  - {{key: k{rule}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n");
    }
    let (rules, problems) = RuleSet::compile(&file(&text), &weir_rules::Options::default(), None);
    assert_eq!(problems, []);
    let rules = Arc::new(rules);
    let hit = |rule: usize, hits: u64| {
        let rule = rules.rules().nth(rule).unwrap();
        rule.stats.total_hits.fetch_add(hits, Relaxed);
    };
    let mut traffic = Traffic::default();
    let mut first = |count: usize| {
        let ranked = traffic.rank(Some(rules.clone()));
        let rows = ranked["rows"].as_array().unwrap();
        assert_eq!((rows.len(), &ranked["omitted"]), (50, &json!(10)));
        let names = rows.iter().map(|row| row["rule"].as_str().unwrap().to_owned());
        names.take(count).collect::<Vec<_>>()
    };
    hit(58, 100);
    hit(59, 200);
    assert_eq!(first(3), ["k59", "k58", "k0"]);
    hit(57, 2);
    hit(58, 1);
    assert_eq!(first(3), ["k57", "k58", "k59"]);
    assert_eq!(first(4), ["k59", "k58", "k57", "k0"]);
    assert_eq!(Traffic::default().rank(None)["rows"], json!([]));
}
