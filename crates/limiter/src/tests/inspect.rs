//! What operators see of a descriptor, and its reset.

use super::*;
use weir_limit::KeyState;
use weir_store::OnStoreFailure;
use weir_store::guard::{Guard, GuardOptions};

const RULES: &str = "domain: d
descriptors:
  - key: a
    rate_limits:
      - { name: burst, requests_per_unit: 3, unit: minute }
      - { name: exact, requests_per_unit: 5, period: 10m, algorithm: sliding_log }
  - { key: path, value: /api/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 4} }
  - key: user
    descriptors:
      - key: id
        rate_limit: { algorithm: concurrency, requests_per_unit: 2, hold_id: id }
  - key: login
    rate_limit: {unit: minute, requests_per_unit: 1}
    ban: {after: 2, within: 1m, for: [1m, 1h]}
  - { key: free, rate_limit: {unlimited: true} }
  - { key: pass }
";

const TIMEOUT: Duration = Duration::from_secs(1);

impl Bench {
    async fn inspect(&self, entries: &[Entry<'_>], spans: &[u64]) -> Inspection<'_> {
        self.inspect_with(entries, None, spans).await
    }

    async fn inspect_with(
        &self,
        entries: &[Entry<'_>],
        limit: Option<Override>,
        spans: &[u64],
    ) -> Inspection<'_> {
        let descriptor = Descriptor { entries, limit, ..Default::default() };
        let (limiter, rules) = (&self.limiter, &self.rules);
        limiter.inspect(rules, "d", &descriptor, spans, TIMEOUT).await.unwrap()
    }

    async fn reset(&self, entries: &[Entry<'_>]) -> Applied<'_> {
        let descriptor = Descriptor { entries, ..Default::default() };
        let (limiter, rules) = (&self.limiter, &self.rules);
        limiter.reset(rules, "d", &descriptor, TIMEOUT).await.unwrap()
    }
}

fn used(inspection: &Inspection<'_>) -> Vec<u64> {
    let state: &KeyState = inspection.state.as_ref().unwrap().as_ref().unwrap();
    state.limits.iter().map(|limit| limit.used).collect()
}

#[tokio::test]
async fn all_limits_of_a_key_are_shown_as_json() {
    let bench = Bench::new(RULES);
    let entries = [("a", "x")];
    bench.ask(&entries);
    bench.clock.advance(5 * SECOND);
    for _ in 0..3 {
        bench.ask(&entries);
    }
    let spans = [5 * SECOND, 600 * SECOND, 601 * SECOND];
    let inspection = bench.inspect(&entries, &spans).await;
    let json = serde_json::to_value(inspection.describe()).unwrap();
    let rule = bench.rules.rules().next().unwrap();
    let expected = serde_json::json!({
        "domain": "d",
        "entries": [{ "key": "a", "value": "x" }],
        "rule": rule.describe(),
        "control": null,
        "key": "weir:{d|a=x}f60+l600",
        "limits": [
            {
                "name": "burst", "algorithm": "fixed_window", "n": 3, "text": "3 per minute",
                "shadow_mode": false, "used": 3, "remaining": 0, "reset_ms": 35_000,
                "retry_ms": 35_000,
            },
            {
                "name": "exact", "algorithm": "sliding_log", "n": 5,
                "text": "5 per 10 minutes, sliding_log", "shadow_mode": false, "used": 3,
                "remaining": 2, "reset_ms": 600_000, "retry_ms": null,
            },
        ],
        "holds": null,
        "log_len": 3,
        "counts": [
            {
                "span_ms": 5_000, "count": 2, "resolution_ms": 0, "max_late_ms": 0,
                "is_minimum": false, "limit": 1, "algorithm": "sliding_log",
            },
            {
                "span_ms": 600_000, "count": 3, "resolution_ms": 0, "max_late_ms": 0,
                "is_minimum": false, "limit": 1, "algorithm": "sliding_log",
            },
            {
                "span_ms": 601_000,
                "error": "a span of 601s is longer than 600s, the longest period over which this rule \
                          counts: use up to that",
            },
        ],
        "error": null,
    });
    assert_eq!(json, expected, "{json:#}");
}

#[tokio::test]
async fn the_key_is_that_of_decisions() {
    let bench = Bench::new(RULES);
    bench.ask(&[("path", "/api/1")]);
    bench.ask(&[("path", "/api/2")]);
    // The rule shares its threshold.
    let shared = bench.inspect(&[("path", "/api/3")], &[]).await;
    assert_eq!(used(&shared), [2]);
    assert_eq!(shared.applied.key.as_deref(), Some("weir:{d|path=/api/*}f3600"));

    // The entry of the hold id is not part of the key.
    let descriptor = |id| [("user", "ann"), ("id", id)];
    for id in ["1", "2"] {
        let entries = descriptor(id);
        bench.send(&[Descriptor { entries: &entries, ..Default::default() }], 0);
    }
    let held = bench.inspect(&descriptor("any"), &[]).await;
    assert_eq!(used(&held), [2]);
    let json = serde_json::to_value(held.describe()).unwrap();
    assert_eq!(json["holds"]["ids"], 2);
    assert!(json["holds"]["hits"] == 2 && json["holds"]["expires_ms"] == 60_000);

    // A limit that is sent along counts where a rule of the same unit does.
    let limit = Override { requests_per_unit: 9, unit: 3, unit_multiplier: None };
    let sent = bench.inspect_with(&[("path", "/api/*")], Some(limit), &[]).await;
    assert_eq!((used(&sent), sent.applied.rule.is_none()), (vec![2], true));
    assert_eq!(serde_json::to_value(sent.describe()).unwrap()["limits"][0]["remaining"], 7);
    let descriptor = Descriptor { limit: Some(Override::default()), ..Default::default() };
    let (limiter, rules) = (&bench.limiter, &bench.rules);
    let invalid = limiter.inspect(rules, "d", &descriptor, &[], TIMEOUT).await;
    assert!(invalid.is_err_and(|error| error.contains("limit.unit is unknown")));
}

#[tokio::test]
async fn what_is_not_counted_has_no_state() {
    let bench = Bench::new(RULES);
    for (key, rule) in [("free", true), ("pass", false), ("other", false)] {
        let none = bench.inspect(&[(key, "x")], &[SECOND]).await;
        assert_eq!((none.applied.rule.is_some(), none.state.is_none()), (rule, true), "{key}");
        let json = serde_json::to_value(none.describe()).unwrap();
        assert!(json["limits"] == serde_json::json!([]) && json["error"].is_null());
        assert!(bench.reset(&[(key, "x")]).await.key.is_none());
    }
    let (limiter, rules) = (&bench.limiter, &bench.rules);
    let descriptor = Descriptor { entries: &[("a", "x")], ..Default::default() };
    let elsewhere = limiter.inspect(rules, "e", &descriptor, &[], TIMEOUT).await.unwrap();
    assert!(elsewhere.state.is_none() && elsewhere.applied.rule.is_none());
}

#[tokio::test]
async fn a_reset_descriptor_starts_over() {
    let bench = Bench::new(RULES);
    for value in ["x", "y"] {
        for _ in 0..4 {
            bench.ask(&[("a", value)]);
        }
    }
    let over = |value| bench.ask(&[("a", value)]).0;
    assert!(over("x") && over("y"));
    assert_eq!(bench.reset(&[("a", "x")]).await.key.as_deref(), Some("weir:{d|a=x}f60+l600"));
    assert_eq!(used(&bench.inspect(&[("a", "x")], &[]).await), [0, 0]);
    assert!(!over("x") && over("y"));
}

#[tokio::test]
async fn denials_and_the_ban_of_a_key_are_shown_and_a_reset_ends_it() {
    let bench = Bench::new(RULES);
    let entries = [("login", "eve")];
    let shown = async || {
        let described = bench.inspect(&entries, &[]).await.describe();
        serde_json::to_value(described.state.ban).unwrap()
    };
    let is_over = || bench.ask(&entries).0;
    let none = serde_json::json!({
        "banned": false, "strikes": 0, "after": 2, "within_ms": 60_000, "since_ms": null,
        "ends_ms": null, "bans": 0,
    });
    assert_eq!(shown().await, none);
    assert!(!is_over() && is_over());
    bench.clock.advance(2 * SECOND);
    let strikes = shown().await;
    assert_eq!((&strikes["strikes"], &strikes["since_ms"]), (&1.into(), &2_000.into()));
    assert!(is_over());
    bench.clock.advance(SECOND);
    let banned = serde_json::json!({
        "banned": true, "strikes": 0, "after": 2, "within_ms": 60_000, "since_ms": 3_000,
        "ends_ms": 59_000, "bans": 1,
    });
    assert_eq!(shown().await, banned);
    // The window has ended, and the ban has not.
    bench.clock.advance(40 * SECOND);
    assert!(is_over());
    bench.reset(&entries).await;
    assert_eq!(shown().await, none);
    assert!(!is_over());
    assert!(bench.inspect(&[("a", "x")], &[]).await.describe().state.ban.is_none());
}

#[tokio::test]
async fn a_failing_store_is_shown_as_such() {
    let bench = Bench::new(RULES);
    let clock = bench.clock.clone();
    let store = Fake::new(MemoryStore::new(clock.clone(), 10));
    store.fail(|_| Some(StoreError::TimedOut));
    let options = GuardOptions { on_failure: OnStoreFailure::Allow, replicas: 1, max_keys: 10 };
    let guard = Guard::new(store, clock, options);
    let limiter = Limiter::new(guard, crate::LimiterOptions::default());
    let descriptor = Descriptor { entries: &[("a", "x")], ..Default::default() };
    let json = limiter.inspect(&bench.rules, "d", &descriptor, &[SECOND], TIMEOUT).await;
    let json = serde_json::to_value(json.unwrap().describe()).unwrap();
    assert_eq!(json["error"], "the store did not answer in time");
    assert!(json["limits"][0]["n"] == 3 && json["limits"][0]["used"].is_null());
    assert!(json["counts"].is_null());
    let failed = limiter.reset(&bench.rules, "d", &descriptor, TIMEOUT).await;
    assert_eq!(failed.err(), Some(ResetError::Store(StoreError::TimedOut)));
}

#[tokio::test]
async fn what_a_policy_counts_locally_is_shown_beside_a_store_that_fails() {
    let bench = Bench::new(RULES);
    let clock = bench.clock.clone();
    let store = Fake::new(MemoryStore::new(clock.clone(), 10));
    store.fail(|_| Some(StoreError::TimedOut));
    let options = GuardOptions { on_failure: OnStoreFailure::Local, replicas: 2, max_keys: 10 };
    let limiter = Limiter::new(Guard::new(store, clock, options), crate::LimiterOptions::default());
    let descriptors = [Descriptor { entries: &[("a", "x")], ..Default::default() }];
    let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
    let decided =
        limiter.decide(Some(&bench.rules), &request, TIMEOUT, &mut Holds::default()).await;
    assert!(!decided.unwrap().over_limit);
    let read = limiter.inspect(&bench.rules, "d", &descriptors[0], &[], TIMEOUT).await;
    let ReadState { state, error, .. } = read.unwrap().describe();
    assert_eq!(error.as_deref(), Some("the store did not answer in time"));
    let shown = |limit: &InspectedLimit| (limit.text.clone(), limit.used, limit.remaining);
    let local: Vec<_> = state.local.iter().map(shown).collect();
    let exact = "3 per 10 minutes, sliding_log".to_owned();
    assert_eq!(local, [("2 per minute".to_owned(), Some(1), Some(1)), (exact, Some(1), Some(2))]);
}

/// Handlers of HTTP need futures that may move between threads.
#[test]
fn inspecting_may_move_between_threads() {
    fn is_send(_: impl Send) {}
    let bench = Bench::new(RULES);
    let descriptor = Descriptor::default();
    is_send(bench.limiter.inspect(&bench.rules, "d", &descriptor, &[], TIMEOUT));
    is_send(bench.limiter.reset(&bench.rules, "d", &descriptor, TIMEOUT));
}
