//! Counters that one build writes and the other continues.

use std::thread;

use super::{Answer, Build, hit, refund, stop};
use crate::support::redis::Server;
use crate::support::weir::{Setup, Weir};

/// The hits that each of [`LIMITS`] admits.
const HITS: u64 = 6;

/// A limit of each kind: the key, and the rest of its descriptor.
const LIMITS: [(&str, &str); 12] = [
    ("fixed", "rate_limit: { unit: year, requests_per_unit: 6 }"),
    (
        "calendar",
        "rate_limit: { unit: year, requests_per_unit: 6, align: calendar, time_zone: Europe/Berlin }",
    ),
    ("window", "rate_limit: { unit: year, requests_per_unit: 6, algorithm: sliding_window }"),
    ("log", "rate_limit: { unit: year, requests_per_unit: 6, algorithm: sliding_log }"),
    (
        "buckets",
        "rate_limit: { unit: year, requests_per_unit: 6, algorithm: bucketed_window, buckets: 12 }",
    ),
    ("tokens", "rate_limit: { unit: year, requests_per_unit: 6, algorithm: token_bucket }"),
    (
        "strict",
        "rate_limit: { unit: year, requests_per_unit: 6, algorithm: token_bucket, strict: true }",
    ),
    ("gcra", "rate_limit: { unit: year, requests_per_unit: 6, algorithm: gcra }"),
    (
        "debt",
        "rate_limit: { unit: year, requests_per_unit: 6, algorithm: gcra, charge_denied: true, max_debt: 9 }",
    ),
    ("holds", "rate_limit: { requests_per_unit: 6, algorithm: concurrency, hold_timeout: 1h }"),
    (
        "several",
        "rate_limits: [{ unit: year, requests_per_unit: 6 }, { unit: year, requests_per_unit: 9, algorithm: sliding_log }]",
    ),
    (
        "pool",
        "value: a*\n    share_threshold: true\n    rate_limit: { unit: year, requests_per_unit: 6 }",
    ),
];

fn rules() -> String {
    let descriptors = LIMITS.map(|(key, rest)| format!("  - key: {key}\n    {rest}\n"));
    format!("domain: shop\ndescriptors:\n{}", descriptors.concat())
}

/// Sends a hit of each limit. All must get this answer.
fn all(weir: &Weir, wanted: Answer) {
    for (key, _) in LIMITS {
        assert_eq!(hit(weir, &[(key, "ann")]), wanted, "{key}");
    }
}

/// Uses up every limit, with both builds at the same time.
fn both_continue(setup: impl Fn(Build) -> Setup) {
    let (old, new) = (setup(Build::Old).start(), setup(Build::New).start());
    let mut left = HITS;
    let mut admit = |weir: &Weir| {
        left -= 1;
        all(weir, Answer::Ok(left));
    };
    for weir in [&old, &new, &new, &old] {
        admit(weir);
    }
    // A hit of the one, which the other refunds.
    for (by, at) in [(&old, &new), (&new, &old)] {
        all(by, Answer::Ok(1));
        for (key, _) in LIMITS {
            refund(at, &[(key, "ann")]);
        }
    }
    for weir in [&new, &old] {
        admit(weir);
    }
    for weir in [&new, &old] {
        all(weir, Answer::Denied);
    }
}

#[test]
fn both_builds_count_together() {
    let redis = Server::start();
    both_continue(|build| build.on(&redis, &rules()));
}

#[test]
fn counters_outlive_an_upgrade_and_a_rollback() {
    let redis = Server::start();
    let mut left = HITS;
    for (build, hits) in [(Build::Old, 2), (Build::New, 2), (Build::Old, 1), (Build::New, 1)] {
        let weir = build.on(&redis, &rules()).start();
        for _ in 0..hits {
            left -= 1;
            all(&weir, Answer::Ok(left));
        }
        stop(weir);
    }
    assert_eq!(left, 0);
    for build in [Build::Old, Build::New] {
        all(&build.on(&redis, &rules()).start(), Answer::Denied);
    }
}

#[test]
fn a_hold_of_one_build_ends_at_the_other() {
    let redis = Server::start();
    let rules = "domain: shop
descriptors:
  - key: job
    descriptors:
      - key: id
        rate_limit: { requests_per_unit: 2, algorithm: concurrency, hold_id: id, hold_timeout: 1h }
";
    let [old, new] = [Build::Old, Build::New].map(|it| it.on(&redis, rules).start());
    let job = |id| [("job", "report"), ("id", id)];
    let is_admitted = |weir, id| matches!(hit(weir, &job(id)), Answer::Ok(_));
    assert!(is_admitted(&old, "a") && is_admitted(&new, "b"));
    assert!(!is_admitted(&old, "c") && !is_admitted(&new, "c"));
    refund(&new, &job("a"));
    assert!(is_admitted(&new, "d") && !is_admitted(&old, "e"));
    refund(&old, &job("b"));
    // A hold that has ended does not end another one.
    refund(&old, &job("a"));
    assert!(is_admitted(&old, "f") && !is_admitted(&new, "g"));
}

#[test]
fn both_builds_admit_no_hit_too_many_at_the_same_time() {
    const THREADS: u64 = 4;
    const TRIES: u64 = 60;
    let redis = Server::start();
    let rules = rules().replace("requests_per_unit: 6", "requests_per_unit: 100");
    let replicas = [Build::Old, Build::New].map(|it| it.on(&redis, &rules).start());
    for (key, _) in LIMITS.iter().filter(|(key, _)| *key != "several") {
        let admitted: u64 = thread::scope(|scope| {
            let tries = |weir| {
                let is_admitted = move |_: &u64| hit(weir, &[(key, "ann")]) != Answer::Denied;
                (0..TRIES).filter(is_admitted).count() as u64
            };
            let thread = |number| {
                let weir = &replicas[number as usize % 2];
                scope.spawn(move || tries(weir))
            };
            let threads: Vec<_> = (0..THREADS).map(thread).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 100, "{key}");
    }
}
