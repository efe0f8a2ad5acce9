//! Decisions in the lists of top keys.

use std::collections::{HashMap, HashSet};

use super::*;
use weir_common::threads::random;
use weir_top::{By, Top, TopList, TopQuery, TopRow};

fn bench(rules: &str) -> Bench {
    with_options(rules, crate::LimiterOptions::default())
}

fn with_options(rules: &str, options: crate::LimiterOptions) -> Bench {
    with_redacted(rules, options, &[])
}

fn with_redacted(rules: &str, options: crate::LimiterOptions, redact: &[&str]) -> Bench {
    let Bench { rules, limiter, clock } = Bench::with(rules, options);
    let redact = redact.iter().map(|name| (*name).to_owned()).collect();
    let options = weir_top::TopOptions { entries: 1024, redact, threads: THREADS, share: false };
    let top = Arc::new(Top::new(options, clock.clone()));
    // More keys than the bench has.
    let limiter = Limiter::new(MemoryStore::new(clock.clone(), 1_000_000), limiter.options);
    Bench { rules, limiter: limiter.with_top(Some(top)), clock }
}

fn list(bench: &Bench, by: By) -> TopList {
    bench.limiter.top().unwrap().list(&TopQuery::new(by))
}

/// The entries of a row, its rule, and its count.
fn counts(bench: &Bench, by: By) -> Vec<(String, u64)> {
    let text = |row: &TopRow| {
        let entries = row.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value));
        let rule = row.rule.as_deref().unwrap_or("-");
        format!("{} {rule}", entries.collect::<Vec<_>>().join(","))
    };
    let list = list(bench, by);
    assert!(list.rows.iter().all(|row| row.domain == "d" && row.error == 0));
    let mut counts: Vec<_> = list.rows.iter().map(|row| (text(row), row.count)).collect();
    counts.sort();
    counts
}

/// The limit, used, n and reset of the rows near their limit.
fn near(bench: &Bench) -> Vec<(String, u64, u32, u64)> {
    let rows = list(bench, By::Near).rows.into_iter().filter_map(|row| row.near);
    rows.map(|near| (near.limit, near.used, near.n, near.reset_ms)).collect()
}

fn count(text: &str, count: u64) -> (String, u64) {
    (text.to_owned(), count)
}

#[test]
fn all_keys_of_a_rule_show_the_path_that_is_computed_of_the_rule() {
    let long = "x".repeat(300);
    let rules = format!(
        "domain: d
descriptors:
  - key: api_key
    value: s3cret
    descriptors:
      - {{key: user, rate_limit: {{unit: hour, requests_per_unit: 10}}}}
      - {{key: path, rate_limit: {{unit: hour, requests_per_unit: 10}}}}
      - {{key: id, rate_limit: {{algorithm: concurrency, requests_per_unit: 10, hold_id: id}}}}
  - key: api_key
    value: s3call
    descriptors:
      - {{key: call, rate_limit: {{unit: hour, requests_per_unit: 10}}, reserve: {{id: call, estimate: 1}}}}
  - key: api_key
    value: s3*
    descriptors: [{{key: user, rate_limit: {{unit: hour, requests_per_unit: 10}}}}]
  - key: api_key
    value: {long}
    descriptors: [{{key: user, rate_limit: {{unit: hour, requests_per_unit: 10}}}}]
  - {{key: address, network: 10.0.0.0/8, rate_limit: {{unit: hour, requests_per_unit: 10}}}}
"
    );
    let redact = ["api_key", "address"];
    let bench = with_redacted(&rules, crate::LimiterOptions::default(), &redact);
    let longer = "y".repeat(1_000);
    let keys: [&[Entry<'_>]; 10] = [
        &[("api_key", "s3cret"), ("user", "ann")],
        &[("api_key", "s3cret"), ("user", &longer)],
        &[("api_key", "s3cret"), ("path", "/")],
        &[("api_key", "s3cret"), ("id", "1")],
        &[("api_key", "s3call"), ("call", "1")],
        &[("api_key", "s3x"), ("user", "ann")],
        &[("api_key", "s3y"), ("user", "ann")],
        &[("api_key", &long), ("user", "ann")],
        &[("address", "10.1.1.1")],
        &[("address", "10.2.2.2")],
    ];
    for entries in keys {
        bench.send(&[Descriptor { entries, ..Default::default() }], 1);
    }
    let top = bench.limiter.top().unwrap();
    let of_rules: HashSet<_> =
        bench.rules.rules().map(|rule| top.redaction().rule_path(rule)).collect();
    let rows = list(&bench, By::Hits).rows;
    assert_eq!(of_rules.len(), 7, "{of_rules:?}");
    let of_rows: HashSet<_> = rows.into_iter().filter_map(|row| row.rule).collect();
    assert_eq!(of_rows, of_rules);
    assert!(of_rows.iter().all(|path| !path.contains("s3") && !path.contains("10.")));
    for rule in bench.rules.rules() {
        let shown = top.redaction().rule_path(rule);
        let list = top.list(&TopQuery { rule: Some(&shown), ..TopQuery::new(By::Hits) });
        assert!(!list.rows.is_empty(), "{shown}");
    }
}

#[test]
fn hits_denials_and_keys_near_their_limit_are_listed() {
    let bench = bench(
        "domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
",
    );
    for _ in 0..7 {
        bench.ask(&[("user", "ann"), ("free", "x"), ("other", "x"), ("none", "x")]);
    }
    assert_eq!(near(&bench), []);
    bench.ask(&[("user", "ann")]);
    assert_eq!(near(&bench), [(String::new(), 8, 10, 3_580_000)]);
    bench.clock.advance(SECOND);
    let user = |hits, is_negative_hits| {
        let entries = &[("user", "ann")];
        let hits_addend = Some(hits);
        bench.send(
            &[Descriptor { entries, hits_addend, is_negative_hits, ..Default::default() }],
            0,
        );
    };
    // The second is denied, the others are a look and a refund.
    for (hits, is_refund) in [(2, false), (5, false), (0, false), (9, true)] {
        user(hits, is_refund);
    }
    assert_eq!(near(&bench), [(String::new(), 10, 10, 3_579_000)]);
    let near_hits = [count("user=ann user", 3)];
    assert_eq!(counts(&bench, By::Near), near_hits);
    assert_eq!(counts(&bench, By::Hits), [count("none=x none", 7), count("user=ann user", 15)]);
    assert_eq!(counts(&bench, By::Denied), [count("none=x none", 7), count("user=ann user", 5)]);
    bench.clock.advance(3_579 * SECOND);
    assert_eq!(near(&bench), []);
}

#[test]
fn rows_have_the_entries_and_the_limit_that_are_counted() {
    let bench = bench(
        "domain: d
descriptors:
  - {key: path, value: /a/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - key: user
    descriptors:
      - key: id
        rate_limit: {algorithm: concurrency, requests_per_unit: 10, hold_id: id, hold_timeout: 1m}
  - key: two
    rate_limits:
      - {name: burst, unit: second, requests_per_unit: 2}
      - {unit: hour, requests_per_unit: 2}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
",
    );
    bench.ask(&[("path", "/a/b"), ("path", "/a/c"), ("two", "x"), ("shadow", "x")]);
    bench.clock.advance(SECOND);
    bench.ask(&[("two", "x")]);
    let limit = Override { requests_per_unit: 1, unit: 3, unit_multiplier: None };
    let entries = &[("sent", "x")];
    bench.send(&[Descriptor { entries, limit: Some(limit), ..Default::default() }], 0);
    for id in ["1", "2"] {
        let entries = &[("user", "ann"), ("id", id)];
        bench.send(&[Descriptor { entries, ..Default::default() }], 0);
    }
    let hits = [
        count("path=/a/* path_/a/*", 2),
        count("sent=x -", 1),
        count("shadow=x shadow", 1),
        count("two=x two", 2),
        count("user=ann user.id", 2),
    ];
    assert_eq!(counts(&bench, By::Hits), hits);
    assert_eq!(counts(&bench, By::Denied), []);
    assert_eq!(counts(&bench, By::WouldBeDenied), [count("shadow=x shadow", 1)]);
    let mut near: Vec<_> =
        near(&bench).into_iter().map(|(limit, used, n, _)| (limit, used, n)).collect();
    near.sort();
    assert_eq!(
        near,
        [(String::new(), 1, 1), (String::new(), 2, 2), ("2 per hour".to_owned(), 2, 2)]
    );
}

#[test]
fn rules_that_count_the_same_entries_have_rows_of_their_own() {
    let bench = bench(
        "domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
    descriptors:
      - {key: call, rate_limit: {unit: day, requests_per_unit: 10}, reserve: {id: call, estimate: 9}}
      - {key: id, rate_limit: {algorithm: concurrency, requests_per_unit: 10, hold_id: id}}
",
    );
    let keys: [&[Entry<'_>]; 3] =
        [&[("user", "ann")], &[("user", "ann"), ("call", "1")], &[("user", "ann"), ("id", "1")]];
    let descriptors = keys.map(|entries| Descriptor { entries, ..Default::default() });
    bench.send(&descriptors, 0);
    let hits =
        [count("user=ann user", 1), count("user=ann user.call", 9), count("user=ann user.id", 1)];
    assert_eq!(counts(&bench, By::Hits), hits);
    assert_eq!(list(&bench, By::Hits).total, 11);
    assert_eq!(
        counts(&bench, By::Near),
        [count("user=ann user", 1), count("user=ann user.call", 9)]
    );
}

#[test]
fn every_limit_that_a_key_is_near_has_a_row() {
    let bench = bench(
        "domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: burst, unit: second, requests_per_unit: 3}
      - {name: daily, unit: day, requests_per_unit: 40}
      - {name: watched, unit: hour, requests_per_unit: 20, shadow_mode: true}
      - {name: monthly, unit: day, unit_multiplier: 30, requests_per_unit: 40}
",
    );
    let ask = |times| (0..times).for_each(|_| _ = bench.ask(&[("user", "ann")]));
    for _ in 0..31 {
        ask(1);
        bench.clock.advance(SECOND);
    }
    assert_eq!(near(&bench), []);
    // The 32nd of 40: the limit of a second decides, and is not near.
    ask(1);
    let rows = || {
        let mut rows: Vec<_> = near(&bench).into_iter().map(|row| (row.0, row.1, row.2)).collect();
        rows.sort();
        rows
    };
    let row = |name: &str, used, n| (name.to_owned(), used, n);
    assert_eq!(rows(), [row("daily", 32, 40), row("monthly", 32, 40)]);
    // A denial is none.
    ask(3);
    let all = [row("burst", 3, 3), row("daily", 34, 40), row("monthly", 34, 40)];
    assert_eq!(rows(), all);
    bench.clock.advance(SECOND);
    assert_eq!(rows(), all[1..]);
    let resets: HashMap<_, _> = near(&bench).into_iter().map(|row| (row.0, row.3)).collect();
    assert!(resets["daily"] < resets["monthly"], "{resets:?}");
}

#[test]
fn a_key_is_near_the_burst_of_its_limit() {
    let bench = bench(
        "domain: d
descriptors:
  - {key: above, rate_limit: {name: above, algorithm: token_bucket, rate: 10/h, burst: 20}}
  - {key: below, rate_limit: {name: below, algorithm: gcra, rate: 300/15m, burst: 5}}
  - key: several
    rate_limits:
      - {name: second, rate: 1/s}
      - {name: bucket, algorithm: token_bucket, rate: 10/h, burst: 20}
",
    );
    let of =
        |name: &str| near(&bench).into_iter().find(|row| row.0 == name).map(|row| (row.1, row.2));
    for (name, not_near, n) in [("above", 15, 20), ("below", 3, 5), ("several", 15, 20)] {
        let limit = if name == "several" { "bucket" } else { name };
        for _ in 0..not_near {
            bench.ask(&[(name, "x")]);
            // For the limit that decides about the last of them.
            bench.clock.advance(if name == "several" { SECOND } else { 0 });
        }
        assert_eq!(of(limit), None, "{name}");
        bench.ask(&[(name, "x")]);
        assert_eq!(of(limit), Some((not_near + 1, n)), "{name}");
    }
}

#[test]
fn what_a_denial_of_the_whole_request_kept_from_being_charged_is_not_near() {
    let rules = "domain: d
charge: together
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
";
    let used = |bench: &Bench| {
        (0..3).for_each(|_| _ = bench.ask(&[("a", "x")]));
        bench.ask(&[("a", "x"), ("none", "x")]);
        near(bench).first().map(|(_, used, ..)| *used)
    };
    let one = bench(rules);
    assert_eq!(used(&one), None);
    one.ask(&[("a", "x")]);
    assert_eq!(near(&one)[0].1, 4);
    // In the global shadow mode all are charged.
    let options = crate::LimiterOptions { shadow_mode: true, ..Default::default() };
    assert_eq!(used(&with_options(rules, options)), Some(4));
}

#[test]
fn what_a_settlement_returns_is_used_no_longer() {
    let bench = bench(
        "domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: hour, unit: hour, requests_per_unit: 1000}
      - {name: day, unit: day, requests_per_unit: 800}
    reserve: {id: call, settle: settle, estimate: 800}
",
    );
    let send = |entries: &[Entry<'_>], hits| {
        let hits_addend = Some(hits);
        bench.send(&[Descriptor { entries, hits_addend, ..Default::default() }], 0);
    };
    let used = || {
        let mut used: Vec<_> =
            near(&bench).into_iter().map(|(name, used, n, _)| (name, used, n)).collect();
        used.sort();
        used
    };
    let settle = |id, hits| send(&[("user", "ann"), ("call", id), ("settle", "")], hits);
    let of_both = |used| [("day".to_owned(), used, 800), ("hour".to_owned(), used, 1000)];
    send(&[("user", "ann"), ("call", "1")], 800);
    assert_eq!(used(), of_both(800));
    settle("1", 700);
    assert_eq!(used(), of_both(700)[..1]);
    send(&[("user", "ann"), ("call", "2")], 100);
    assert_eq!(used(), of_both(800));
    settle("2", 0);
    assert_eq!(used(), of_both(700)[..1]);
}

#[test]
fn a_reservation_that_is_asked_for_again_returns_nothing() {
    let bench = bench(
        "domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}
",
    );
    bench.send(&[Descriptor { entries: &[("user", "ann")], ..Default::default() }], 4);
    let make = |step| {
        let (entries, budget) = (&[("user", "ann")], Budget { id: "1", step });
        bench.send(&[Descriptor { entries, budget: Some(&budget), ..Default::default() }], 0).0
    };
    let used = || near(&bench).into_iter().map(|(_, used, ..)| used).collect::<Vec<_>>();
    assert!(!make(ReservationStep::Reserve(5)));
    assert_eq!(used(), [9]);
    // The same request, and another of the same id.
    for (hits, is_over) in [(5, false), (3, true), (0, true)] {
        assert_eq!((make(ReservationStep::Reserve(hits)), used()), (is_over, vec![9]), "{hits}");
    }
    make(ReservationStep::Settle(4));
    assert_eq!(used(), [8]);
    assert_eq!(counts(&bench, By::Hits), [count("user=ann user", 9)]);
}

#[test]
fn what_a_shadow_mode_admits_is_not_denied() {
    let rules = "domain: d
descriptors:
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
";
    let ask = |options| {
        let bench = with_options(rules, options);
        bench.ask(&[("none", "x"), ("shadow", "x")]);
        [By::Denied, By::WouldBeDenied].map(|by| counts(&bench, by))
    };
    let [none, shadow] = [count("none=x none", 1), count("shadow=x shadow", 1)];
    assert_eq!(ask(crate::LimiterOptions::default()), [vec![none.clone()], vec![shadow.clone()]]);
    let global = crate::LimiterOptions { shadow_mode: true, ..Default::default() };
    assert_eq!(ask(global), [vec![], vec![none, shadow]]);
}

#[test]
fn banned_keys_are_listed_until_they_are_reset() {
    let rules = "domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
    ban: {after: 2, within: 10m, for: 1h}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
    ban: {after: 2, within: 10m, for: 1h}
";
    let bench = bench(rules);
    let ask = || _ = bench.ask(&[("user", "ann"), ("shadow", "x")]);
    (0..2).for_each(|_| ask());
    assert_eq!(counts(&bench, By::Banned), []);
    // The ban begins, and denies the next one.
    (0..2).for_each(|_| ask());
    bench.clock.advance(SECOND);
    assert_eq!(counts(&bench, By::Banned), [count("user=ann user", 2)]);
    for (by, hits) in [(By::Banned, 2), (By::Denied, 3)] {
        let rows = list(&bench, by).rows;
        assert_eq!((rows[0].count, rows[0].banned_ms), (hits, Some(3_599_000)));
    }
    let descriptor = Descriptor { entries: &[("user", "ann")], ..Default::default() };
    let reset = bench.limiter.reset(&bench.rules, "d", &descriptor, Duration::from_secs(1));
    assert!(reset.now_or_never().expect("memory answers now").is_ok());
    assert_eq!(counts(&bench, By::Banned), []);
    assert_eq!(list(&bench, By::Denied).rows[0].banned_ms, None);
}

#[test]
fn what_only_the_shadow_mode_of_a_limit_admits_would_be_denied() {
    let bench = bench(
        "domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: enforced, unit: hour, requests_per_unit: 5}
      - {name: watched, unit: hour, requests_per_unit: 1, shadow_mode: true}
  - key: all
    rate_limits:
      - {unit: hour, requests_per_unit: 2, shadow_mode: true}
",
    );
    let ask = || _ = bench.ask(&[("user", "ann"), ("all", "x")]);
    (0..4).for_each(|_| ask());
    let would_be_denied = [count("all=x all", 2), count("user=ann user", 3)];
    assert_eq!(counts(&bench, By::WouldBeDenied), would_be_denied);
    assert_eq!(counts(&bench, By::Denied), []);
    // The enforced limit admits and is near; the other one has admitted two hits.
    let mut listed: Vec<_> =
        near(&bench).into_iter().map(|(name, used, ..)| (name, used)).collect();
    listed.sort();
    assert_eq!(listed, [(String::new(), 2), ("enforced".to_owned(), 4)]);
    // What both limits deny is denied.
    (0..2).for_each(|_| ask());
    let would_be_denied = [count("all=x all", 4), count("user=ann user", 4)];
    assert_eq!(counts(&bench, By::WouldBeDenied), would_be_denied);
    assert_eq!(counts(&bench, By::Denied), [count("user=ann user", 1)]);
}

/// The threads of the test below, and the requests of each.
const THREADS: usize = 4;
const REQUESTS: usize = 100_000;

/// Zipf traffic over a million keys. Each count is within its error of the exact one, every key above
/// the threshold is listed, and the list of keys near their limit is exact.
#[test]
fn lists_are_as_exact_as_they_say() {
    let bench = bench(
        "domain: d
descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 100}}]
",
    );
    let ask = || -> Vec<u32> {
        let users = std::iter::repeat_with(|| 1e6_f64.powf(random()) as u32);
        let ask = |user: &u32| drop(bench.ask(&[("user", &user.to_string())]));
        users.take(REQUESTS).inspect(ask).collect()
    };
    let mut exact: HashMap<String, u64> = HashMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
        for user in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
            *exact.entry(user.to_string()).or_default() += 1;
        }
    });
    let exact = |count: fn(u64) -> u64| -> HashMap<&str, u64> {
        let counts = exact.iter().map(|(user, hits)| (user.as_str(), count(*hits)));
        counts.filter(|(_, count)| *count > 0).collect()
    };
    let denied = |hits: u64| hits.saturating_sub(100);
    for (by, exact) in [(By::Hits, exact(|hits| hits)), (By::Denied, exact(denied))] {
        let list = list(&bench, by);
        assert_eq!(list.total, exact.values().sum::<u64>());
        assert!(list.unlisted <= list.total / 1024, "{} of {}", list.unlisted, list.total);
        let user = |row: &TopRow| row.entries[0].value.clone();
        for row in &list.rows {
            let exact = exact.get(user(row).as_str()).copied().unwrap_or(0);
            assert!((row.count - row.error..=row.count).contains(&exact), "{exact}: {row:?}");
        }
        let listed: HashSet<String> = list.rows.iter().map(user).collect();
        assert_eq!(listed.len(), list.rows.len(), "a key is listed twice");
        let above = |(_, count): &(&&str, &u64)| **count > list.unlisted;
        let above: Vec<_> = exact.iter().filter(above).collect();
        assert!(above.len() > 200, "{}", above.len());
        assert!(above.iter().all(|(user, _)| listed.contains(**user)));
    }
    let near = |hits: u64| 100.min(if hits < 80 { 0 } else { hits });
    let mut wanted: Vec<_> = exact(near).into_iter().collect();
    let list = list(&bench, By::Near);
    let row = |row: &'_ TopRow| {
        let near = row.near.clone().unwrap();
        assert_eq!((near.n, near.reset_ms, row.error), (100, 3_580_000, 0));
        // Threads may share a list, and each may record after another that was admitted later.
        let used = row.count + 79;
        let is_recent = (near.used..near.used + THREADS as u64).contains(&used);
        assert!(is_recent, "{} admissions from 80 on, {} used", row.count, near.used);
        (row.entries[0].value.clone(), used)
    };
    let mut rows: Vec<_> = list.rows.iter().map(row).collect();
    wanted.sort();
    rows.sort();
    assert!(wanted.len() > 200, "{}", wanted.len());
    assert!(rows.iter().map(|(user, used)| (user.as_str(), *used)).eq(wanted));
}
