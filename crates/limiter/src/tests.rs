//! The answers of the reference, case by case.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

mod byte_values;
mod controls;
mod counts;
mod denials;
mod holds;
mod inspect;
mod limits;
mod networks;
mod replicas;
mod reserving;
mod series;
mod top_keys;

#[path = "../../../tests/support/redis.rs"]
pub(crate) mod servers;

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Semaphore;

use super::*;
use crate::lookup::Lookup;
use weir_common::clock::ManualClock;
use weir_limit::{Calendar, SECOND, Unit};
use weir_rules::source::RuleFile;
use weir_rules::{RuleOptions, RuleSet};
use weir_store::conformance::fakes::{Fake, Gated};
use weir_store::memory::MemoryStore;
use weir_store::{Entry, StoreError};

/// Twenty seconds into a minute, an hour and a day.
const NOW: u64 = 1_700_006_400 * SECOND + 20 * SECOND;

struct Bench {
    rules: RuleSet,
    limiter: Limiter<MemoryStore<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
}

/// The status of a descriptor: over, the limit's n, remaining, reset.
type Shown = (bool, Option<u32>, u32, u64);

impl Bench {
    fn new(rules: &str) -> Bench {
        Bench::with(rules, crate::LimiterOptions::default())
    }

    fn with(rules: &str, options: crate::LimiterOptions) -> Bench {
        let file = RuleFile { name: "test.yaml".into(), text: rules.into() };
        let near_limit_ratio = Some(options.near_limit_ratio);
        let rule_options = RuleOptions { near_limit_ratio, ..RuleOptions::default() };
        let (rules, problems) = RuleSet::compile(&[file], &rule_options, None);
        assert_eq!(problems, []);
        let clock = Arc::new(ManualClock::new(NOW));
        let store = MemoryStore::new(clock.clone(), 1_000);
        Bench { rules, limiter: Limiter::new(store, options), clock }
    }

    fn decide<'s>(&'s self, request: &Request<'_>) -> Result<RequestDecision<'s>, RequestError> {
        self.decide_with(request, &mut Holds::default())
    }

    fn decide_with<'s>(
        &'s self,
        request: &Request<'_>,
        holds: &mut Holds,
    ) -> Result<RequestDecision<'s>, RequestError> {
        let (rules, timeout) = (Some(&self.rules), Duration::from_millis(8));
        let decided = self.limiter.decide(rules, request, timeout, holds).now_or_never();
        self.release(holds.as_mut().and_then(TakenHolds::denied));
        decided.expect("memory answers now")
    }

    fn release(&self, holds: Holds) {
        let Some(taken) = holds else { return };
        taken.release(self.limiter.store()).now_or_never().expect("memory answers now");
    }

    /// Sends one descriptor per entry.
    fn ask(&self, entries: &[Entry<'_>]) -> (bool, Vec<Shown>) {
        let descriptors: Vec<_> = entries
            .iter()
            .map(|entry| Descriptor { entries: std::slice::from_ref(entry), ..Default::default() })
            .collect();
        self.send(&descriptors, 0)
    }

    fn send(&self, descriptors: &[Descriptor<'_>], hits_addend: u32) -> (bool, Vec<Shown>) {
        let decision = self
            .decide(&Request { domain: "d", descriptors, hits_addend, ..Request::default() })
            .expect("a decision");
        let shown = |status: &Status<'_>| {
            let n = status.limit.map(|limit| limit.requests_per_unit);
            (status.over_limit, n, status.remaining, status.reset_seconds())
        };
        (decision.over_limit, decision.statuses.iter().map(shown).collect())
    }

    fn stats(&self, rule: &str) -> [u64; 5] {
        let rule = self.rules.rules().find(|r| &*r.name == rule).expect("a rule of that name");
        let s = &rule.stats;
        [&s.total_hits, &s.over_limit, &s.near_limit, &s.within_limit, &s.shadow_mode]
            .map(|count| count.load(Relaxed))
    }
}

const MINUTE: &str = "domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: pass}
";

#[test]
fn the_hit_after_the_last_is_over_and_the_window_ends() {
    let bench = Bench::new(MINUTE);
    assert_eq!(bench.ask(&[("a", "x")]), (false, vec![(false, Some(2), 1, 40)]));
    assert_eq!(bench.ask(&[("a", "x")]), (false, vec![(false, Some(2), 0, 40)]));
    assert_eq!(bench.ask(&[("a", "x")]), (true, vec![(true, Some(2), 0, 40)]));
    assert_eq!(bench.ask(&[("a", "y")]), (false, vec![(false, Some(2), 1, 40)]));
    bench.clock.advance(40 * SECOND);
    assert_eq!(bench.ask(&[("a", "x")]), (false, vec![(false, Some(2), 1, 60)]));
    assert_eq!(bench.stats("d.a"), [5, 1, 1, 4, 0]);
}

#[tokio::test]
async fn a_store_that_cannot_answer_now_is_waited_for_and_counted_once() {
    let Bench { rules, limiter, .. } = Bench::new(MINUTE);
    let gated = Gated { inner: limiter.store, release: Semaphore::new(0) };
    let limiter = Limiter::new(gated, limiter.options);
    let entries = [("a", "x")];
    let descriptors = [Descriptor { entries: &entries, ..Default::default() }];
    let (timeout, holds) = (Duration::from_millis(8), &mut Holds::default());
    let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
    let (rules, counts) = (Some(&rules), limiter.counts());
    let mut deciding = pin!(limiter.decide(rules, &request, timeout, holds));
    assert!(deciding.as_mut().now_or_never().is_none());
    assert_eq!(counts.ok.load(Relaxed), 0);
    limiter.store().release.add_permits(1);
    let decision = deciding.await.unwrap();
    assert_eq!(decision.statuses[0].remaining, 1);
    assert_eq!(counts.ok.load(Relaxed), 1);
    // Without a charge the store is not needed.
    let (other, holds) = (Request { domain: "other", ..request }, &mut Holds::default());
    assert!(limiter.decide(rules, &other, timeout, holds).now_or_never().unwrap().is_ok());
    assert_eq!(counts.ok.load(Relaxed), 2);
    assert_eq!(counts.domain_not_found.counts()[0].1, 1);
}

#[test]
fn unmatched_and_unlimited_descriptors_have_no_limit() {
    let bench = Bench::new(MINUTE);
    let (over, shown) = bench.ask(&[("none", ""), ("pass", "x"), ("free", "x"), ("a", "")]);
    assert!(!over);
    let bare = (false, None, 0, 0);
    assert_eq!(shown, [bare, bare, (false, None, u32::MAX, 0), (false, Some(2), 1, 40)]);
    let request = Request {
        domain: "other",
        descriptors: &[Descriptor { entries: &[("a", "x")], ..Default::default() }],
        ..Request::default()
    };
    let decision = bench.decide(&request).unwrap();
    assert!(!decision.over_limit && decision.statuses[0].limit.is_none());
    assert_eq!(bench.limiter.counts().domain_not_found.counts()[0].1, 1);
}

#[test]
fn hits_come_from_the_descriptor_else_from_the_request() {
    let bench = Bench::new(MINUTE);
    let ask = |own: Option<u64>, request: u32| {
        let descriptor =
            Descriptor { entries: &[("b", "x")], hits_addend: own, ..Default::default() };
        bench.send(&[descriptor], request).1[0]
    };
    assert_eq!(ask(None, 0).2, 4);
    assert_eq!(ask(None, 2).2, 2);
    assert_eq!(ask(Some(1), 9).2, 1);
    // A descriptor's own 0 only looks, the request's means 1.
    assert_eq!(ask(Some(0), 9).2, 1);
    assert_eq!(ask(None, 1).2, 0);
    assert_eq!(ask(Some(0), 1), (false, Some(5), 0, 3_580));
    // Denied hits are counted too.
    assert_eq!(ask(Some(u64::MAX), 1), (true, Some(5), 0, 3_580));
    assert_eq!(ask(Some(0), 1), (true, Some(5), 0, 3_580));
}

#[test]
fn negative_hits_are_refunded() {
    let bench = Bench::new(MINUTE);
    let ask = |is_negative_hits, hits| {
        let descriptor = Descriptor {
            entries: &[("b", "x")],
            hits_addend: Some(hits),
            is_negative_hits,
            ..Default::default()
        };
        bench.send(&[descriptor], 0).1[0]
    };
    assert_eq!(ask(false, 5).2, 0);
    assert_eq!(ask(true, 2), (false, Some(5), 2, 3_580));
    assert_eq!(ask(true, 100).2, 5);
    assert!(!ask(false, 5).0);
    assert!(ask(false, 1).0);
}

#[test]
fn invalid_requests_get_the_errors_of_the_reference() {
    let bench = Bench::new(MINUTE);
    let some = [Descriptor::default()];
    let ask = |domain, descriptors| {
        bench.decide(&Request { domain, descriptors, ..Request::default() }).unwrap_err()
    };
    assert_eq!(ask("", &[]).to_string(), "rate limit domain must not be empty");
    assert_eq!(ask("d", &[]).to_string(), "rate limit descriptor list must not be empty");
    let request = Request { domain: "d", descriptors: &some, ..Request::default() };
    let no_rules = bench.limiter.look_up(None, &request, &mut None, &mut Lookup::default()).err();
    assert_eq!(no_rules, Some(RequestError::NoRules));
    assert_eq!(RequestError::NoRules.to_string(), "no rate limit configuration loaded");
    let many = vec![Descriptor::default(); 257];
    assert_eq!(ask("d", &many), RequestError::TooManyDescriptors(257, 256));
    assert_eq!(bench.limiter.counts().invalid.load(Relaxed), 3);
    // A descriptor without entries matches nothing.
    assert_eq!(bench.send(&some, 0), (false, vec![(false, None, 0, 0)]));
}

#[test]
fn overrides_count_like_rules_of_their_unit() {
    let bench = Bench::new(MINUTE);
    let ask = |requests_per_unit, unit, unit_multiplier, entry: &[Entry<'_>]| {
        let limit = Some(Override { requests_per_unit, unit, unit_multiplier });
        let descriptor = Descriptor { entries: entry, limit, ..Default::default() };
        let request = Request { domain: "d", descriptors: &[descriptor], ..Request::default() };
        bench.decide(&request).map(|decision| {
            let status = decision.statuses[0];
            let limit = status.limit.unwrap();
            (status.over_limit, limit.unit.unwrap(), limit.unit_multiplier, status.remaining)
        })
    };
    // It does not have to match a rule, and shares the counter of one with the same unit.
    assert_eq!(ask(3, 1, None, &[("z", "")]).unwrap(), (false, Unit::Second, 1, 2));
    bench.ask(&[("a", "x")]);
    assert_eq!(ask(9, 2, None, &[("a", "x")]).unwrap(), (false, Unit::Minute, 1, 7));
    assert_eq!(ask(9, 2, Some(15), &[("a", "x")]).unwrap(), (false, Unit::Minute, 15, 8));
    assert!(ask(0, 7, None, &[("z", "")]).unwrap().0);
    // A month is 30 days, or that of the calendar: another shape of the key.
    let month = Arc::new(Calendar::new(Unit::Month, "UTC").unwrap());
    let shape = |unit, unit_multiplier, calendar| {
        let limit = Override { requests_per_unit: 1, unit, unit_multiplier };
        limit.plan(calendar).unwrap().shape().to_owned()
    };
    assert_ne!(shape(5, None, Some(&month)), shape(5, None, None));
    for (unit, multiplier) in [(5, Some(2)), (4, None), (6, None)] {
        assert_eq!(shape(unit, multiplier, Some(&month)), shape(unit, multiplier, None));
    }
    for (unit, multiplier, shown) in [
        (0, None, "limit.unit is unknown"),
        (99, None, "limit.unit is unknown"),
        (-1, None, "limit.unit is unknown"),
        (1, Some(0), "limit.unit_multiplier is 0"),
        (6, Some(101), "over 100 years"),
        (6, Some(u32::MAX), "over 100 years"),
    ] {
        let error = ask(1, unit, multiplier, &[("a", "x")]).unwrap_err().to_string();
        assert!(error.contains(shown), "{error}");
    }
}

#[test]
fn a_rule_in_shadow_mode_passes_and_is_counted() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
",
    );
    bench.ask(&[("s", "x")]);
    assert_eq!(bench.ask(&[("s", "x")]), (false, vec![(false, Some(1), 0, 40)]));
    assert_eq!(bench.stats("d.s"), [2, 1, 1, 1, 1]);
    assert_eq!(bench.limiter.counts().rule_shadow_mode.load(Relaxed), 1);
}

#[test]
fn a_limit_in_shadow_mode_passes_and_is_counted() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: minute, requests_per_unit: 3}
      - {name: trial, unit: minute, requests_per_unit: 1, shadow_mode: true}
",
    );
    for _ in 0..3 {
        bench.ask(&[("k", "x")]);
    }
    assert_eq!(bench.stats("d.k"), [3, 2, 0, 1, 2]);
    assert_eq!(bench.limiter.counts().rule_shadow_mode.load(Relaxed), 2);
    assert_eq!(bench.limiter.counts().ok.load(Relaxed), 3);
    // Denied: by the other limit.
    bench.ask(&[("k", "x")]);
    assert_eq!(bench.stats("d.k"), [4, 3, 0, 1, 2]);
    assert_eq!(bench.limiter.counts().rule_shadow_mode.load(Relaxed), 2);
}

#[tokio::test]
async fn what_a_store_fails_to_charge_is_an_error_of_its_rule() {
    let Bench { rules, limiter, .. } = Bench::new(MINUTE);
    let Limiter { store, options, .. } = limiter;
    let limiter = Limiter::new(Fake::new(store), options);
    limiter.store().fail(|_| Some(StoreError::TimedOut));
    let (one, free) = ([("a", "x")], [("free", "")]);
    let descriptors = [&free, &one].map(|entries| Descriptor {
        entries,
        hits_addend: Some(3),
        ..Default::default()
    });
    let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
    let (timeout, holds) = (Duration::from_millis(8), &mut Holds::default());
    let decided = limiter.decide(Some(&rules), &request, timeout, holds).await;
    let error = decided.err().unwrap();
    assert_eq!(error, StoreError::TimedOut.into());
    let wanted =
        "the store did not answer in time (settings store.budget and store.redis.slow_after)";
    assert_eq!(error.to_string(), wanted);
    let errors = rules.rules().map(|rule| rule.stats.store_errors.load(Relaxed));
    assert_eq!(errors.collect::<Vec<_>>(), [3, 0, 0]);
}

#[test]
fn global_shadow_mode_changes_only_the_overall_code() {
    let options = crate::LimiterOptions { shadow_mode: true, ..Default::default() };
    let bench = Bench::with(MINUTE, options);
    for _ in 0..2 {
        bench.ask(&[("a", "x")]);
    }
    assert_eq!(bench.ask(&[("a", "x")]), (false, vec![(true, Some(2), 0, 40)]));
    assert_eq!(bench.limiter.counts().global_shadow_mode.load(Relaxed), 1);
    assert_eq!(bench.stats("d.a"), [3, 1, 1, 2, 0]);
}

const QUOTAS: &str = "domain: d
descriptors:
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: r, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: sq, quota_mode: true, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: n, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, quota_mode: true, rate_limit: {unlimited: true}}
";

#[test]
fn quotas_are_over_only_when_all_are() {
    let bench = Bench::new(QUOTAS);
    let over = |keys: &[&str]| bench.ask(&keys.iter().map(|&key| (key, "")).collect::<Vec<_>>()).0;
    assert!(over(&["q"]));
    assert!(!over(&["q", "r"]));
    assert!(!over(&["q", "sq"]));
    assert!(over(&["q", "free"]));
    assert!(over(&["q", "unmatched"]));
    assert!(over(&["q", "r", "n"]));
    // Its own status is over nevertheless.
    assert!(bench.ask(&[("q", ""), ("r", "")]).1[0].0);
}

#[test]
fn in_global_quota_mode_unmatched_descriptors_pass() {
    let bench =
        Bench::with(QUOTAS, crate::LimiterOptions { quota_mode: true, ..Default::default() });
    assert!(bench.ask(&[("n", ""), ("q", "")]).0);
    assert!(!bench.ask(&[("n", ""), ("unmatched", "")]).0);
    assert!(bench.ask(&[("n", ""), ("free", "")]).0);
}

#[test]
fn rules_that_others_replace_are_dropped() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - {key: a, rate_limit: {name: a, unit: minute, requests_per_unit: 0}}
  - {key: b, rate_limit: {name: b, unit: minute, requests_per_unit: 5, replaces: [{name: a}]}}
  - {key: c, rate_limit: {name: c, unit: minute, requests_per_unit: 5, replaces: [{name: b}]}}
  - {key: d, rate_limit: {name: d, unit: minute, requests_per_unit: 5, replaces: [{name: e}]}}
  - {key: e, rate_limit: {name: e, unlimited: true, replaces: [{name: d}]}}
",
    );
    let bare = (false, None, 0, 0);
    assert_eq!(bench.ask(&[("a", ""), ("b", "")]), (false, vec![bare, (false, Some(5), 4, 40)]));
    // A replaced rule replaces others too, and two rules can replace each other.
    let (_, shown) = bench.ask(&[("a", ""), ("b", ""), ("c", "")]);
    assert_eq!(shown, [bare, bare, (false, Some(5), 4, 40)]);
    // An unlimited rule is not replaced, but replaces others.
    let unlimited = (false, None, u32::MAX, 0);
    assert_eq!(bench.ask(&[("d", ""), ("e", "")]), (false, vec![bare, unlimited]));
    assert_eq!(bench.stats("d.a"), [0; 5]);
}

#[test]
fn an_unlimited_rule_that_is_replaced_is_no_quota() {
    let rules = "domain: d
descriptors:
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, quota_mode: true, rate_limit: {name: free, unlimited: true}}
  - {key: r, rate_limit: {unit: minute, requests_per_unit: 5, replaces: [{name: free}]}}
";
    let entries = [("q", ""), ("free", ""), ("r", "")];
    let quota_mode = |quota_mode| crate::LimiterOptions { quota_mode, ..Default::default() };
    // The one quota is over. A descriptor without a rule would be a quota that passes, where all
    // are quotas.
    let bench = Bench::with(rules, quota_mode(true));
    assert!(bench.ask(&entries[..2]).0);
    let (over, shown) = Bench::with(rules, quota_mode(false)).ask(&entries);
    assert!(over);
    assert_eq!(shown[1], (false, None, u32::MAX, 0));
    // With r as a quota that passes, nothing is over; it is r that decides, not what it replaces.
    assert!(!bench.ask(&entries).0);
    let over = rules.replace("requests_per_unit: 5", "requests_per_unit: 0");
    assert!(Bench::with(&over, quota_mode(true)).ask(&entries).0);
}

#[test]
fn a_shared_threshold_counts_all_values_of_a_wildcard_as_one() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - {key: f, value: files/*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: g, value: files/*, rate_limit: {unit: minute, requests_per_unit: 2}}
",
    );
    assert_eq!(bench.ask(&[("f", "files/a")]).1[0].2, 1);
    assert_eq!(bench.ask(&[("f", "files/b")]).1[0].2, 0);
    assert!(bench.ask(&[("f", "files/c")]).0);
    assert_eq!(bench.ask(&[("g", "files/a")]).1[0].2, 1);
    assert_eq!(bench.ask(&[("g", "files/b")]).1[0].2, 1);
}

#[test]
fn equal_descriptors_of_one_request_are_decided_in_order() {
    let bench = Bench::new(MINUTE);
    let (over, shown) = bench.ask(&[("a", "x"), ("a", "x"), ("a", "x")]);
    assert!(over);
    assert_eq!(shown.iter().map(|shown| shown.0).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn headers_show_the_least_remaining_or_the_last_over_its_limit() {
    let status = |n: u32, remaining, over_limit, quota| Status {
        over_limit,
        quota,
        remaining,
        limit: Some(ShownLimit {
            name: "",
            requests_per_unit: n,
            unit: None,
            unit_multiplier: 1,
            burst: None,
        }),
        ..Default::default()
    };
    let shown = |statuses: &[Status<'_>]| {
        let statuses = statuses.iter().copied().collect();
        RequestDecision { over_limit: false, statuses }.shown().map(|(_, l)| l.requests_per_unit)
    };
    assert_eq!(shown(&[Status::default()]), None);
    assert_eq!(shown(&[status(1, 5, false, false), status(2, 5, false, false)]), Some(1));
    assert_eq!(shown(&[status(1, 5, false, false), status(2, 4, false, false)]), Some(2));
    let over = [status(1, 0, true, false), status(2, 0, true, false), status(3, 1, false, false)];
    assert_eq!(shown(&over), Some(2));
    assert_eq!(shown(&[status(1, 3, false, false), status(2, 0, true, true)]), Some(2));
    assert_eq!(shown(&[status(1, 0, false, false), status(2, 0, true, true)]), Some(1));
}
