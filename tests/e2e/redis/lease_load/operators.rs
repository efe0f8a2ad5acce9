//! Rules, controls and counters change under load. All of it in long tests only.

use std::ops::Range;

use serde_json::{Value, json};

use super::clients::now;
use super::*;

/// The most hits that a window may have had, from some instants on.
struct Bounds(Vec<(Micros, u64)>);

impl Bounds {
    fn new(n: u64) -> Bounds {
        Bounds(vec![(0, n)])
    }

    /// A change that raises the limit counts when it begins, one that lowers it when all replicas have it.
    fn from(&mut self, at: Micros, n: u64) {
        self.0.push((at, n));
    }

    fn most(&self, span: Range<Micros>) -> u64 {
        let ends = self.0[1..].iter().map(|(at, _)| *at).chain([Micros::MAX]);
        let during =
            self.0.iter().zip(ends).filter(|((from, _), to)| *from < span.end && *to > span.start);
        during.map(|((_, n), _)| *n).max().expect("a bound")
    }
}

/// Writes rules at all replicas, and waits until the active ones are as they should be.
fn reload(replicas: &[Weir], rules: &str, are_active: impl Fn(&str) -> bool) {
    for weir in replicas {
        let (file, new) = (weir.path("rules.yaml"), weir.path("new.yaml"));
        std::fs::write(&new, rules).unwrap();
        std::fs::rename(new, file).unwrap();
    }
    for weir in replicas {
        wait_for("the rules are active", || {
            are_active(&http::get(weir.debug, "/rlconfig").body).then_some(())
        });
    }
}

/// Whether `plain` has this limit.
fn has(n: u64) -> impl Fn(&str) -> bool {
    let limit = format!("requests_per_unit={n},");
    move |active| {
        let mut of_plain = active.lines().filter(|line| line.starts_with("load.plain:"));
        of_plain.any(|line| line.contains(&limit))
    }
}

/// The rules without `sliding`.
fn without_sliding(rules: &str) -> String {
    let (before, rest) = rules.split_once("  - key: sliding\n").expect("the rule");
    let (_, after) = rest.split_once("  - key: ring\n").expect("the next rule");
    format!("{before}  - key: ring\n{after}")
}

/// Puts a control of the hot value of a rule at the first replica. Returns when each replica surely had it.
fn put(replicas: &[Weir], rule: u8, mut members: Value) -> Vec<Micros> {
    let id = RULES[usize::from(rule)];
    members["domain"] = "load".into();
    members["entries"] = json!([{ "key": id, "value": "hot" }]);
    members["for"] = "1h".into();
    ControlApi::new(&replicas[0]).put_good(id, &members);
    let mut since = vec![now()];
    for weir in &replicas[1..] {
        wait_for("the control is shared", || is_listed(weir, id).then_some(()));
        since.push(now());
    }
    since
}

/// Deletes it. Returns when all replicas surely had no more of it.
fn delete(replicas: &[Weir], rule: u8) -> Micros {
    let id = RULES[usize::from(rule)];
    assert_eq!(ControlApi::new(&replicas[0]).delete(&format!("/v1/controls/{id}")).0, 200);
    for weir in &replicas[1..] {
        wait_for("the control is deleted", || (!is_listed(weir, id)).then_some(()));
    }
    now()
}

fn is_listed(weir: &Weir, id: &str) -> bool {
    ControlApi::new(weir).get(&format!("/v1/controls/{id}")).0 == 200
}

#[test]
fn changed_numbers_and_controls_bound_the_next_window() {
    if !is_long() {
        return;
    }
    let Numbers { n, seconds: length, .. } = SHORT;
    let lower = Numbers { n: n / 2, ..SHORT };
    let redis = Server::start();
    let exam = Exam::start(on(&redis), SHORT, 3, Target::Steady);
    let replicas = &exam.replicas;
    let limits = SHORT.limits();
    let mut bounds: Vec<Bounds> = limits.iter().map(|limit| Bounds::new(limit.n)).collect();
    let (plain, sliding, ring) = (1, 2, 3);
    let (mut blocked, mut allowed) = (Vec::new(), Vec::new());
    let windows = |count| seconds(count * length);
    windows(2);
    for _ in 0..4 {
        reload(replicas, &lower.rules(), has(lower.n));
        let at = now();
        for (bounds, limit) in bounds.iter_mut().zip(lower.limits()) {
            bounds.from(at, limit.n);
        }
        windows(3);
        let at = now();
        for (bounds, limit) in bounds.iter_mut().zip(limits) {
            bounds.from(at, limit.n);
        }
        reload(replicas, &SHORT.rules(), has(n));
        windows(2);

        let since = put(replicas, PLAIN, json!({ "action": "limit", "limit": { "n": n / 4 } }));
        bounds[plain].from(*since.iter().max().expect("replicas"), n / 4);
        windows(3);
        bounds[plain].from(now(), n);
        delete(replicas, PLAIN);

        let since = put(replicas, TOTAL, json!({ "action": "block" }));
        windows(1);
        blocked.push((since, now()));
        delete(replicas, TOTAL);

        bounds[ring].from(now(), u64::MAX);
        let since = put(replicas, RING, json!({ "action": "allow" }));
        windows(2);
        allowed.push((since, now()));
        bounds[ring].from(delete(replicas, RING), n);
        windows(2);

        bounds[sliding].from(now(), u64::MAX);
        let is_limited = |active: &str| active.contains("load.sliding:");
        reload(replicas, &without_sliding(&SHORT.rules()), |active| !is_limited(active));
        windows(1);
        reload(replicas, &SHORT.rules(), is_limited);
        bounds[sliding].from(now(), n);
        windows(2);
    }
    let (outcome, replicas) = exam.stop();
    // Controls are of the hot value.
    let hot = outcome.samples.iter().copied().filter(|sample| sample.value == HOT);
    let samples: Vec<Sample> = hot.collect();
    println!("{} requests, {} failed", outcome.requests, outcome.failed);
    let mut over = Vec::new();
    for (limit, bounds) in limits.iter().zip(&bounds) {
        over.extend(limit.examine(&samples, |span| bounds.most(span)).over);
    }
    assert!(over.is_empty(), "{over:#?}");
    let during = |rule: u8, (since, until): &(Vec<Micros>, Micros)| {
        let (since, until) = (since.clone(), *until);
        let of_rule = samples.iter().filter(move |it| it.rule == rule);
        let during = of_rule
            .filter(move |it| it.sent > since[usize::from(it.replica)] && it.answered < until);
        (during.clone().filter(|it| it.admitted).count(), during.count())
    };
    for block in &blocked {
        let (admitted, all) = during(TOTAL, block);
        assert!(admitted == 0 && all > 50, "{admitted} of {all} passed a block");
    }
    for allowance in &allowed {
        let (admitted, all) = during(RING, allowance);
        assert!(admitted == all && all > 50, "{admitted} of {all} passed an allowance");
    }
    assert!(leased(&replicas) > 0);
    assert_none_returned_twice(&outcome, &replicas[0]);
}

#[test]
fn a_reset_admits_at_most_a_lease_of_each_replica_more() {
    if !is_long() {
        return;
    }
    const N: u64 = 1_600;
    const KEYS: [&str; 2] = ["month", "plain"];
    let rules = format!(
        "domain: load\ndescriptors:\n  \
         - key: month\n    rate_limit: {{ unit: month, align: calendar, requests_per_unit: {N} }}\n  \
         - key: plain\n    rate_limit: {{ unit: month, align: calendar, requests_per_unit: {N}, \
         charge_denied: false }}\n"
    );
    let redis = Server::start();
    let replicas = [(); 3].map(|()| replica(on(&redis), &rules));
    // The third one has no load.
    let addresses = replicas[..2].iter().map(|weir| weir.grpc).collect();
    let load = Load::start(&KEYS, addresses, 32, Target::Steady);
    let api = ControlApi::new(&replicas[2]);
    let mut resets = Vec::new();
    for round in 0..40 {
        // Before it is used up, and after.
        sleep(Duration::from_millis(300 + 170 * (round % 10)));
        let begun = now();
        for key in KEYS {
            let uri = format!("/v1/state?domain=load&descriptor={key}=hot");
            assert_eq!(api.delete(&uri).0, 200);
        }
        resets.push((begun, now()));
    }
    seconds(2);
    let outcome = load.stop();
    resets.push((now(), now()));
    println!("{} requests, {} failed", outcome.requests, outcome.failed);
    for (rule, key) in KEYS.iter().enumerate() {
        let sums = resets.windows(2).map(|pair| {
            let (from, to) = (pair[0].1, pair[1].0);
            let within = outcome.samples.iter().filter(|sample| {
                usize::from(sample.rule) == rule
                    && sample.value == HOT
                    && sample.admitted
                    && sample.sent >= from
                    && sample.answered <= to
            });
            within.map(|sample| u64::from(sample.hits)).sum::<u64>()
        });
        let sums: Vec<u64> = sums.collect();
        println!("  {key}: {sums:?}");
        let most = *sums.iter().max().expect("resets");
        assert!((N * 9 / 10..=N + 2 * N / 8).contains(&most), "{key}: {most}");
    }
    assert!(leased(&replicas) > 0);
}
