//! Several limits, charging together, holds and budgets, through whole decisions.

use super::*;

pub(super) fn entry<'a>(entries: &'a [Entry<'a>], hits: Option<u64>, back: bool) -> Descriptor<'a> {
    Descriptor { entries, hits_addend: hits, is_negative_hits: back, ..Default::default() }
}

/// The limit shown of the first status: name, n, remaining, reset.
fn shown(bench: &Bench, entries: &[Entry<'_>], hits: u64) -> (bool, String, u32, u32, u64) {
    let descriptors = [entry(entries, Some(hits), false)];
    let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
    let decision = bench.decide(&request).unwrap();
    let status = decision.statuses[0];
    let limit = status.limit.unwrap();
    let name = limit.name.to_owned();
    (status.over_limit, name, limit.requests_per_unit, status.remaining, status.reset_seconds())
}

#[test]
fn the_deciding_limit_is_shown_with_its_name() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - key: k
    rate_limits:
      - { name: burst, unit: second, requests_per_unit: 2 }
      - { name: steady, unit: minute, requests_per_unit: 4 }
",
    );
    let ask = |hits| shown(&bench, &[("k", "x")], hits);
    assert_eq!(ask(1), (false, "burst".into(), 2, 1, 1));
    assert_eq!(ask(1), (false, "burst".into(), 2, 0, 1));
    // Denied, so nothing is charged.
    assert_eq!(ask(1), (true, "burst".into(), 2, 0, 1));
    bench.clock.advance(SECOND);
    assert_eq!(ask(2), (false, "steady".into(), 4, 0, 39));
    bench.clock.advance(SECOND);
    assert_eq!(ask(1), (true, "steady".into(), 4, 0, 38));
    // More than the limit ever allows: no wait helps, so the status has the reset.
    assert_eq!(ask(3), (true, "burst".into(), 2, 0, 1));
}

#[test]
fn a_limit_that_a_client_sends_is_not_leased() {
    let sent = Override { requests_per_unit: 1, unit: 2, unit_multiplier: None };
    assert!(!sent.plan(None).unwrap().can_lease());
}

#[test]
fn replacing_one_limit_of_a_rule_drops_the_rule() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - key: a
    rate_limits:
      - { name: one, unit: second, requests_per_unit: 0 }
      - { name: two, unit: minute, requests_per_unit: 0 }
  - key: b
    rate_limits:
      - { unit: second, requests_per_unit: 5 }
      - { unit: minute, requests_per_unit: 5, replaces: [{ name: two }] }
",
    );
    assert!(bench.ask(&[("a", "")]).0);
    let (over, shown) = bench.ask(&[("a", ""), ("b", "")]);
    assert_eq!((over, shown[0]), (false, (false, None, 0, 0)));
}

const TOGETHER: &str = "domain: d
charge: together
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: log, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 5}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: r, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 9}}
";

fn left(bench: &Bench, key: &str) -> u32 {
    let entries = [(key, "")];
    bench.send(&[entry(&entries, Some(0), false)], 0).1[0].2
}

#[test]
fn together_all_are_charged_or_none() {
    let bench = Bench::new(TOGETHER);
    assert!(!bench.ask(&[("a", ""), ("b", ""), ("log", "")]).0);
    for _ in 0..3 {
        let (over, shown) = bench.ask(&[("a", ""), ("b", ""), ("log", "")]);
        assert!(over);
        assert_eq!(shown.iter().map(|shown| shown.0).collect::<Vec<_>>(), [false, true, false]);
    }
    assert_eq!((left(&bench, "a"), left(&bench, "log")), (4, 4));
    // Equal descriptors see each other, and are undone together.
    assert!(bench.ask(&[("a", ""); 5]).0);
    assert_eq!(left(&bench, "a"), 4);
    assert!(!bench.ask(&[("a", ""); 4]).0);
    assert_eq!(left(&bench, "a"), 0);
}

#[test]
fn together_shadow_rules_never_veto_and_quotas_only_when_all_do() {
    let bench = Bench::new(TOGETHER);
    for _ in 0..3 {
        assert!(!bench.ask(&[("a", ""), ("s", "")]).0);
    }
    assert_eq!(left(&bench, "a"), 2);
    assert!(!bench.ask(&[("a", ""), ("q", ""), ("r", "")]).0);
    // One quota is over, the other is not.
    assert!(!bench.ask(&[("a", ""), ("q", ""), ("r", "")]).0);
    assert_eq!(left(&bench, "a"), 0);
    let bench = Bench::new(TOGETHER);
    assert!(!bench.ask(&[("a", ""), ("q", "")]).0);
    assert!(bench.ask(&[("a", ""), ("q", "")]).0);
    assert_eq!(left(&bench, "a"), 4);
    // In the global shadow mode nothing denies, so all is charged.
    let bench =
        Bench::with(TOGETHER, crate::LimiterOptions { shadow_mode: true, ..Default::default() });
    for _ in 0..3 {
        assert!(!bench.ask(&[("a", ""), ("b", "")]).0);
    }
    assert_eq!(left(&bench, "a"), 2);
}

#[test]
fn together_hits_are_refunded_even_if_others_are_denied() {
    let bench = Bench::new(TOGETHER);
    bench.ask(&[("a", ""), ("b", "")]);
    let (a, b) = ([("a", "")], [("b", "")]);
    let descriptors = [entry(&a, Some(1), true), entry(&b, Some(1), false)];
    assert!(bench.send(&descriptors, 0).0);
    assert_eq!(left(&bench, "a"), 5);
}

#[test]
fn the_last_entry_is_the_hold_id_and_is_not_part_of_the_key() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - key: user
    descriptors:
      - key: id
        rate_limit:
          { algorithm: concurrency, requests_per_unit: 2, hold_id: id, hold_timeout: 10s }
",
    );
    let over = |user: &str, id: &str, back| {
        let entries = [("user", user), ("id", id)];
        bench.send(&[entry(&entries, Some(1), back)], 0).0
    };
    assert!(!over("ann", "1", false));
    assert!(!over("ann", "2", false));
    assert!(over("ann", "3", false));
    assert!(!over("bob", "3", false));
    // The end of a denied request refunds nothing.
    over("ann", "3", true);
    assert!(over("ann", "4", false));
    over("ann", "1", true);
    assert!(!over("ann", "5", false));
    // Holds whose end is never reported expire.
    for i in 0..11 {
        bench.clock.advance(SECOND);
        let id = format!("steady-{i}");
        let admitted = !over("ann", &id, false);
        assert_eq!(admitted, i >= 9, "after {} s", i + 1);
        over("ann", &id, true);
    }
}

#[test]
fn a_budget_charged_afterwards_denies_once_it_is_overdrawn() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - key: user
    rate_limit: { algorithm: token_bucket, unit: minute, requests_per_unit: 100, charge_denied: true }
",
    );
    let ask = |hits| {
        let entries = [("user", "ann")];
        bench.send(&[entry(&entries, Some(hits), false)], 0).1[0]
    };
    assert!(!ask(0).0);
    assert!(!ask(70).0);
    assert!(!ask(0).0, "30 are left");
    assert!(ask(80).0, "it does not fit, and is owed");
    assert!(ask(0).0);
    bench.clock.advance(60 * SECOND);
    assert!(!ask(0).0, "100 have come: 50 are left");
    assert_eq!(ask(0).2, 50);
}

#[test]
fn a_limit_in_shadow_mode_only_counts_next_to_others() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - key: k
    rate_limits:
      - { unit: minute, requests_per_unit: 5 }
      - { unit: minute, requests_per_unit: 1, shadow_mode: true }
",
    );
    for left in (0..5).rev() {
        assert_eq!(shown(&bench, &[("k", "x")], 1), (false, String::new(), 5, left, 40));
    }
    assert!(shown(&bench, &[("k", "x")], 1).0);
}

const WAITS: &str = "domain: d
descriptors:
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: never, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: r, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
";

#[test]
fn a_denied_request_waits_for_all_limits_and_for_one_quota() {
    let bench = Bench::new(WAITS);
    let wait = |keys: &[&'static str]| {
        let entries: Vec<_> = keys.iter().map(|key| [(*key, "")]).collect();
        let descriptors: Vec<_> =
            entries.iter().map(|entries| Descriptor { entries, ..Default::default() }).collect();
        let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let decision = bench.decide(&request).expect("a decision");
        (decision.over_limit, decision.retry_after().map(|wait| wait.as_secs()))
    };
    assert_eq!(wait(&["minute", "hour", "q", "r"]), (false, None));
    assert_eq!(wait(&["minute"]), (true, Some(40)));
    assert_eq!(wait(&["minute", "hour"]), (true, Some(3_580)));
    assert_eq!(wait(&["minute", "never"]), (true, None));
    assert_eq!(wait(&["minute", "watched"]), (true, Some(40)));
    assert_eq!(wait(&["watched"]), (false, None));
    assert_eq!(wait(&["q", "r"]), (true, Some(40)));
    assert_eq!(wait(&["q", "hour"]), (true, Some(3_580)));
}
