//! Denials as a sample has them.

use futures_util::FutureExt;

use super::*;
use crate::{Denial, rule_id};
use weir_common::entry::OwnedEntry;
use weir_top::{Redaction, Top};

const RULES: &str = "domain: d
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 1}
    descriptors:
      - {key: api_key, value: s3cret, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
  - key: login
    rate_limit: {unit: minute, requests_per_unit: 1}
    ban: {after: 2, within: 1m, for: 1h}
";

fn bench(options: crate::LimiterOptions) -> Bench {
    let Bench { rules, limiter, clock } = Bench::with(RULES, options);
    let redaction = Arc::new(Redaction::new(vec!["api_key".to_owned()]));
    Bench { rules, limiter: limiter.with_redaction(redaction), clock }
}

/// Sends a request with these descriptors.
fn send(bench: &Bench, descriptors: &[&[Entry<'_>]]) -> bool {
    let descriptors: Vec<_> =
        descriptors.iter().map(|entries| Descriptor { entries, ..Default::default() }).collect();
    bench.send(&descriptors, 0).0
}

/// Returns the denial that was asked for, if there was one, and asks for the next.
fn waiting(sample: &mut crate::DenialSample) -> Option<Denial> {
    let denial = sample.next().now_or_never();
    sample.ask();
    denial
}

fn entry(key: &str, value: &str) -> OwnedEntry {
    (key, value).into()
}

#[test]
fn a_denial_shows_each_descriptor_over_its_limit() {
    let bench = bench(crate::LimiterOptions::default());
    // Before anyone asks.
    assert!(send(&bench, &[&[("none", "x")]]));
    let mut sample = bench.limiter.denials().sample();
    sample.ask();
    assert!(!send(&bench, &[&[("user", "ann")], &[("unknown", "")], &[("shadow", "")]]));
    assert_eq!(waiting(&mut sample), None);
    assert!(send(&bench, &[&[("shadow", "")], &[("user", "ann")], &[("none", "x")]]));
    let wanted = Denial {
        domain: "d".into(),
        entries: vec![entry("user", "ann")],
        cut: false,
        hits: 1,
        rule: Some("user".into()),
        rule_id: Some(rule_id("d", "user")),
        limit: Some("1 per minute".into()),
        control: None,
        retry_ms: Some(40_000),
        banned: false,
        policy: None,
        suppressed: 0,
        is_sampled: true,
    };
    assert_eq!(waiting(&mut sample), Some(wanted));
    let other = sample.next().now_or_never().expect("the other descriptor");
    assert_eq!((other.entries, other.is_sampled), (vec![entry("none", "x")], false));
    // There is a bound, and the sample has one of each request.
    assert!(send(&bench, &[[("none", "x")].as_slice(); 9]));
    let shown = std::iter::from_fn(|| sample.next().now_or_never());
    let is_sampled: Vec<bool> = shown.map(|denial| denial.is_sampled).collect();
    assert_eq!(is_sampled, [true, false, false, false]);
}

#[test]
fn a_denial_says_whether_a_ban_denied() {
    let bench = bench(crate::LimiterOptions::default());
    let mut sample = bench.limiter.denials().sample();
    sample.ask();
    let mut denied = || {
        assert!(send(&bench, &[&[("login", "eve")]]));
        let Denial { limit, banned, retry_ms, .. } = waiting(&mut sample).expect("a denial");
        assert_eq!(limit.as_deref(), Some("1 per minute"));
        (banned, retry_ms)
    };
    assert!(!send(&bench, &[&[("login", "eve")]]));
    assert_eq!(denied(), (false, Some(40_000)));
    // The ban begins with the second denial.
    assert_eq!(denied(), (true, Some(3_600_000)));
    bench.clock.advance(60 * SECOND);
    assert_eq!(denied(), (true, Some(3_540_000)));
}

#[test]
fn values_are_hashed_and_long_texts_shortened() {
    let bench = bench(crate::LimiterOptions::default());
    let denials = bench.limiter.denials();
    let mut sample = denials.sample();
    sample.ask();
    assert!(send(&bench, &[&[("user", "ann"), ("api_key", "s3cret")]]));
    let denial = waiting(&mut sample).expect("a denial");
    let text = serde_json::to_string(&denial).unwrap() + &format!("{:?}", bench.limiter);
    assert!(!text.contains("s3cret"), "{text}");
    assert!(denial.entries[1].value.starts_with("hash:") && !denial.cut, "{denial:?}");
    let rule = format!("user.api_key_{}", denial.entries[1].value);
    assert_eq!(denial.rule.as_deref(), Some(rule.as_str()));
    assert_eq!(denial.rule_id, Some(rule_id("d", "user.api_key_s3cret")));
    assert_eq!(denials.redaction().keys(), ["api_key"]);

    let long = "ä".repeat(1_000);
    assert!(send(&bench, &[&[("none", &long)]]));
    let denial = waiting(&mut sample).expect("a denial");
    assert_eq!(denial.entries, [entry("none", &format!("{}…", "ä".repeat(99)))]);
    assert!(denial.cut);
}

#[test]
fn a_sample_gets_what_it_asks_for_and_decisions_pay_for_nothing_else() {
    let bench = bench(crate::LimiterOptions::default());
    let denials = bench.limiter.denials();
    let mut sample = denials.sample();
    let deny = |user: &str| assert!(send(&bench, &[&[("none", user)]]));
    deny("before");
    assert!(!denials.are_wanted() && sample.next().now_or_never().is_none());
    sample.ask();
    sample.ask();
    assert!(denials.are_wanted());
    ["first", "second"].into_iter().for_each(deny);
    assert!(!denials.are_wanted());
    let denial = sample.next().now_or_never().expect("a denial");
    assert_eq!((denial.entries, denial.suppressed), (vec![entry("none", "first")], 0));
    assert!(sample.next().now_or_never().is_none());

    sample.ask();
    drop(sample);
    assert!(!denials.are_wanted());
}

#[test]
fn the_global_shadow_mode_denies_nothing() {
    let options = crate::LimiterOptions { shadow_mode: true, ..crate::LimiterOptions::default() };
    let bench = bench(options);
    let mut sample = bench.limiter.denials().sample();
    sample.ask();
    assert!(!send(&bench, &[&[("none", "x")]]));
    assert_eq!(waiting(&mut sample), None);
}

#[test]
fn the_first_denial_of_each_key_is_shown_without_being_asked_for() {
    let Bench { rules, limiter, clock } = bench(crate::LimiterOptions::default());
    let options =
        weir_top::TopOptions { entries: 10, redact: Vec::new(), threads: 1, share: false };
    let top = Arc::new(Top::new(options, clock.clone()));
    let bench = Bench { rules, limiter: limiter.with_top(Some(top)), clock };
    let mut sample = bench.limiter.denials().sample();
    let mut shown = |users: &[&str]| {
        assert!(users.iter().all(|user| send(&bench, &[&[("none", *user)]])));
        let mut shown = Vec::new();
        while let Some(denial) = sample.next().now_or_never() {
            assert!(!denial.is_sampled);
            shown.push(denial.entries[0].value.clone());
        }
        shown
    };
    // A key may be forgotten for another one at its place, so each is repeated before the next.
    assert_eq!(shown(&["eve", "eve", "ann", "ann", "bob", "bob"]), ["eve", "ann", "bob"]);
    assert_eq!(shown(&["bob", "cid", "cid"]), ["cid"]);
    // Nothing of what is admitted.
    assert!(!send(&bench, &[&[("user", "ann")]]));
    assert_eq!(sample.next().now_or_never(), None);
}
