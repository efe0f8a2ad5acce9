//! Statuses and changes, in a runtime whose time is simulated.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time;

use super::*;
use crate::health::Health;
use crate::http::operators::change_log::ChangeLog;
use crate::http::operators::history::History;
use crate::http::operators::history::recorder::record;
use crate::rule_sources::loader::Loader;
use weir_common::clock::ManualClock;
use weir_common::metrics::HistogramSnapshot;
use weir_controls::{ActiveRules, ControlClock, Controls, ControlsOptions, Draft, PutOptions};
use weir_limit::SECOND;
use weir_limiter::{Descriptor, Holds, Limiter, Request};
use weir_rules::RuleSet;
use weir_rules::source::RuleFile;
use weir_store::memory::MemoryStore;
use weir_store::{Answers, Batch};

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
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        self.inner.start(batch, answers)
    }
}

impl Operations for FakeStore {
    fn is_connected(&self) -> bool {
        self.is_connected.load(Relaxed)
    }
}

struct Bench {
    sources: Arc<Sources<FakeStore>>,
    last: LastStatus,
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
    let top = weir_top::TopOptions {
        entries: 100,
        redact: vec!["token".to_owned()],
        threads: 1,
        share: false,
    };
    let top = Arc::new(Top::new(top, clock.clone()));
    let redaction = top.redaction().clone();
    let limiter =
        Limiter::new(store, weir_limiter::LimiterOptions::default()).with_top(Some(top.clone()));
    let limiter = limiter.with_redaction(redaction);
    let clock = ControlClock::new(clock);
    let log = Arc::new(ChangeLog::new(clock.clone()));
    let rules = Arc::new(ActiveRules::new(clock, u64::MAX));
    let controls = Arc::new(Controls::new(rules.clone(), ControlsOptions::default(), || ()));
    let health = Arc::new(Health::new(Default::default()));
    let options = weir_rules::RuleOptions::default();
    let loader = Arc::new(Loader::new(rules.clone(), options, health.clone()));
    loader.load(file(RULES), Vec::new()).unwrap();
    let (limiter, started) = (Arc::new(limiter), std::time::Instant::now());
    let (identities, watch, clock) = Default::default();
    let sources = Sources {
        replica: String::new(),
        grpc_port: None,
        limiter,
        quotas: None,
        top,
        rules,
        controls,
        loader,
        health,
        identities,
        watch,
        log,
        clock,
        limits_follow: "it",
        started,
    };
    Bench { sources: Arc::new(sources), last: LastStatus::default() }
}

impl Bench {
    /// Returns the status and its hash.
    async fn status(&self) -> (Value, String) {
        let (json, hash) = self.last.get(&self.sources).await.unwrap();
        (serde_json::from_str(json.get()).unwrap(), hash)
    }

    /// Returns the status after half a second.
    async fn next_status(&self) -> (Value, String) {
        time::advance(SHARED_FOR).await;
        self.status().await
    }

    fn hit(&self, user: &str) {
        let Sources { limiter, rules, .. } = &*self.sources;
        let entries = [("user", user)];
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let (rules, timeout) = (rules.load(), Duration::from_secs(1));
        let (rules, holds) = (rules.as_deref(), &mut Holds::default());
        let decided = limiter.decide(rules, &request, timeout, holds).now_or_never();
        assert!(decided.is_some());
    }

    /// Records changes for as long as the answer is kept.
    fn record(&self) -> watch::Sender<bool> {
        let (close, closed) = watch::channel(false);
        let sources = self.sources.clone();
        tokio::spawn(async move {
            record(&History::default(), &sources, &HistogramSnapshot::default, closed).await;
        });
        close
    }

    /// Waits for changes after a number. Returns the number of the newest, and all of them.
    async fn changes(&self, after: u64) -> (u64, Vec<Value>) {
        for _ in 0..1_000 {
            let (newest, changes) = self.sources.log.after(after);
            if newest > after {
                let changes = changes.iter().map(|change| serde_json::from_str(change).unwrap());
                return (newest, changes.collect());
            }
            time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no change");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_has_what_is_counted() {
    let bench = bench();
    let (status, hash) = bench.status().await;
    assert_eq!(status["at"], "2023-11-14T22:13:20Z");
    assert_eq!(status["requests"]["over_limit"], 0);
    assert_eq!(status["controls"], json!({ "count": 0, "version": 0, "share_error": null }));
    assert_eq!(status["store"]["connected"], true);
    assert_eq!(status["redacted_keys"], json!(["token"]));
    let wanted = json!([{
        "domain": "d", "rule": "user", "hits": 0, "over_limit": 0, "near_limit": 0,
        "shadow_mode": 0,
    }]);
    assert_eq!((&status["rules"]["rows"], &status["rules"]["omitted"]), (&wanted, &json!(0)));
    let draft = br#"{"domain":"d","entries":[{"key":"user","value":"bob"}],"action":"block"}"#;
    let draft = Draft::read(draft, None).unwrap();
    bench.sources.controls.put(Some("id"), draft, PutOptions::default()).await.unwrap();
    bench.hit("ann");
    // All clients have the same one for a while.
    assert_eq!(bench.status().await, (status, hash.clone()));

    let (next, next_hash) = bench.next_status().await;
    assert_ne!(hash, next_hash);
    assert_eq!(next["controls"], json!({ "count": 1, "version": 1, "share_error": null }));
    assert_eq!(next["requests"]["ok"], 1);
    assert_eq!(next["rules"]["rows"][0]["hits"], 1);
    assert_eq!(next["top"]["hits"]["rows"][0]["entries"][0]["value"], "ann");
    assert_eq!(next["top"]["hits"]["window"], "1m");
    assert_eq!(next["top"]["would_be_denied"]["by"], "would_be_denied");
    assert_eq!(next["top"]["banned"]["rows"], json!([]));
    // Its times are not part of it.
    assert_eq!(bench.next_status().await.1, next_hash);
}

#[tokio::test(start_paused = true)]
async fn denials_reloads_and_the_store_are_changes() {
    let bench = bench();
    let _recording = bench.record();
    time::sleep(Duration::from_millis(1)).await;
    bench.hit("ann\n<img>");
    bench.hit("ann\n<img>");
    let (newest, changes) = bench.changes(0).await;
    let [denial] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((&denial["event"], &denial["number"]), (&json!("denial"), &json!(newest)));
    assert_eq!(denial["entries"], json!([{ "key": "user", "value": "ann\n<img>" }]));
    assert_eq!((&denial["rule"], &denial["limit"]), (&json!("user"), &json!("1 per day")));
    assert_eq!(denial["at"], "2023-11-14T22:13:20Z");

    let loader = &bench.sources.loader;
    loader.load(file("domain: d\n"), Vec::new()).unwrap();
    let (newest, changes) = bench.changes(newest).await;
    let [reload] = &changes[..] else { panic!("{changes:?}") };
    let summary = json!({ "files": 1, "domains": 1, "rules": 0 });
    assert_eq!((&reload["event"], &reload["ok"]), (&json!("reload"), &json!(true)));
    assert_eq!(reload["summary"], summary);
    assert_eq!(reload["changes"]["list"], json!(["d.user removed"]));
    assert!(loader.load(file("domain: d\nuint: day\n"), Vec::new()).is_err());
    let (newest, changes) = bench.changes(newest).await;
    let reload = &changes[0];
    assert_eq!(reload["changes"], Value::Null);
    assert_eq!((&reload["what"], &reload["ok"]), (&json!("rules"), &json!(false)));
    assert!(reload["error"].as_str().unwrap().contains("uint"), "{reload}");
    let (newest, changes) = match changes.len() {
        1 => bench.changes(newest).await,
        _ => (newest, changes[1..].to_vec()),
    };
    let problem = json!({
        "kind": "rules", "severity": "critical",
        "text": "new rules are rejected, the previous ones stay active: config error, unknown key 'uint'",
        "file": "rules.yaml", "line": 2, "column": 1, "count": 1, "runbook": "WeirRulesRejected",
    });
    let mut first = changes[0]["problems"][0].clone();
    assert!(first.as_object_mut().unwrap().remove("since").unwrap().is_string(), "{changes:?}");
    assert_eq!((first, changes[0]["problems"][1].is_null()), (problem, true));
    assert_eq!(bench.next_status().await.0["problems"], changes[0]["problems"]);

    let store = bench.sources.limiter.store();
    store.is_connected.store(false, Relaxed);
    let (newest, changes) = bench.changes(newest).await;
    assert_eq!((&changes[0]["event"], &changes[0]["up"]), (&json!("store"), &json!(false)));
    assert_eq!(bench.next_status().await.0["store"]["connected"], false);
    store.is_connected.store(true, Relaxed);
    assert_eq!(bench.changes(newest).await.1[0]["up"], true);
}

#[tokio::test(start_paused = true)]
async fn a_control_that_changes_is_a_change_with_what_was_before() {
    let bench = bench();
    let _recording = bench.record();
    time::sleep(Duration::from_secs(2)).await;
    let put = async |action: &str, by: &str| {
        let json = json!({
            "domain": "d", "entries": [{ "key": "token", "value": "s3cret" }], "action": action, "by": by,
        });
        let draft = Draft::read(json.to_string().as_bytes(), None).unwrap();
        bench.sources.controls.put(Some("id"), draft, PutOptions::default()).await.unwrap();
    };
    let change = |changes: &[Value]| {
        let [change] = changes else { panic!("{changes:?}") };
        assert_eq!((&change["event"], &change["id"]), (&json!("control"), &json!("id")));
        let [before, after] = ["before", "after"].map(|name| change[name]["action"].clone());
        assert!(!change.to_string().contains("s3cret"), "{change}");
        (change["change"].clone(), change["who"].clone(), before, after)
    };
    let none = Value::Null;
    put("block", "ann").await;
    let (newest, changes) = bench.changes(0).await;
    assert_eq!(change(&changes), (json!("added"), json!("ann"), none.clone(), json!("block")));
    put("allow", "").await;
    let (newest, changes) = bench.changes(newest).await;
    assert_eq!(change(&changes), (json!("changed"), none.clone(), json!("block"), json!("allow")));
    bench.sources.log.add_writer("id", "bob");
    bench.sources.controls.delete("id").await.unwrap();
    let (_, changes) = bench.changes(newest).await;
    assert_eq!(change(&changes), (json!("removed"), json!("bob"), json!("allow"), none));
}

#[test]
fn the_rules_with_the_most_hits_of_late_come_first() {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for rule in 0..60 {
        text += &format!("  - {{key: k{rule}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n");
    }
    let (rules, problems) =
        RuleSet::compile(&file(&text), &weir_rules::RuleOptions::default(), None);
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
