//! Limits that are reported as idle never decide.

use proptest::prelude::*;

use crate::{
    Algorithm, BucketedWindow, Calendar, FixedWindow, Gcra, Limit, Op, Plan, SECOND, SlidingLog,
    SlidingWindow, State, TokenBucket, Unit, idle_limits,
};

fn limit(n: u32, algorithm: Algorithm) -> Limit {
    let fixed = Limit::fixed_window(n, Unit::Second, 1).unwrap();
    Limit { charge_denied: false, algorithm, ..fixed }
}

fn fixed(n: u32, seconds: u64) -> Limit {
    let window = FixedWindow { n, period: seconds * SECOND, calendar: None };
    limit(n, Algorithm::FixedWindow(window))
}

fn log(n: u32, seconds: u64) -> Limit {
    limit(n, Algorithm::SlidingLog(SlidingLog { n, period: seconds * SECOND }))
}

fn gcra(n: u32, seconds: u64, burst: u32) -> Limit {
    limit(n, Algorithm::Gcra(Gcra::new(n, seconds * SECOND, burst, 0).unwrap()))
}

fn bucket(capacity: u32, amount: u32, seconds: u64) -> Limit {
    let interval = seconds * SECOND;
    let bucket = TokenBucket { capacity, amount, interval, strict: false, max_debt: 0 };
    limit(capacity, Algorithm::TokenBucket(bucket))
}

#[test]
fn limits_that_allow_more_are_idle() {
    let calendar = |unit: Unit, n| {
        let calendar = Some(Calendar::new(unit, "Europe/Berlin").unwrap().into());
        let window = FixedWindow { n, period: unit.period(1).unwrap(), calendar };
        Limit { unit: Some(unit), ..limit(n, Algorithm::FixedWindow(window)) }
    };
    for (limits, idle) in [
        (vec![fixed(10, 60), fixed(600, 3600)], vec![(1, 0)]),
        (vec![fixed(10, 60), fixed(599, 3600)], vec![]),
        (vec![fixed(600, 3600), fixed(10, 60)], vec![(0, 1)]),
        // A window of 90 seconds may have parts of three minutes.
        (vec![fixed(10, 60), fixed(30, 90)], vec![(1, 0)]),
        (vec![fixed(10, 60), fixed(29, 90)], vec![]),
        (vec![fixed(10, 60), fixed(10, 60)], vec![(1, 0)]),
        (vec![fixed(10, 60), fixed(20, 60), fixed(700, 3600)], vec![(1, 0), (2, 0)]),
        (vec![fixed(10, 60), log(20, 60)], vec![(1, 0)]),
        (vec![fixed(10, 60), log(19, 60)], vec![]),
        (vec![log(10, 60), fixed(10, 60)], vec![(1, 0)]),
        (vec![fixed(10, 86_400), calendar(Unit::Day, 30)], vec![(1, 0)]),
        (vec![fixed(10, 86_400), calendar(Unit::Day, 29)], vec![]),
        (vec![gcra(10, 60, 5), gcra(20, 60, 5)], vec![(1, 0)]),
        (vec![gcra(10, 60, 6), gcra(20, 60, 5)], vec![]),
        (vec![gcra(10, 60, 5), fixed(16, 60)], vec![(1, 0)]),
        (vec![bucket(5, 1, 60), bucket(6, 1, 60)], vec![(1, 0)]),
        (vec![bucket(5, 1, 60), bucket(6, 2, 60)], vec![]),
        (vec![fixed(0, 60), gcra(1, 60, 1)], vec![(1, 0)]),
        (vec![fixed(10, 60), gcra(10, 60, 10)], vec![]),
        // What is only measured, or counts denied hits, is not compared.
        (vec![Limit { shadow_mode: true, ..fixed(10, 60) }, fixed(600, 3600)], vec![]),
        (vec![Limit { charge_denied: true, ..fixed(10, 60) }, fixed(600, 3600)], vec![]),
        (vec![fixed(10, 60), Limit { charge_denied: true, ..fixed(600, 3600) }], vec![]),
    ] {
        assert_eq!(idle_limits(&limits), idle, "{limits:?}");
    }
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let seconds = prop::sample::select(vec![1_u64, 2, 3, 4, 6, 12]);
    (0..6_u32, 1..12_u32, seconds, 0..6_u32).prop_map(|(kind, n, seconds, other)| match kind {
        0 | 1 => fixed(n, seconds),
        2 => limit(n, Algorithm::SlidingWindow(SlidingWindow { n, period: seconds * SECOND })),
        3 => log(n, seconds),
        4 => {
            let window = BucketedWindow { n, period: seconds * SECOND, buckets: 2 + other };
            limit(n, Algorithm::BucketedWindow(window))
        }
        5 if other % 2 == 0 => gcra(n, seconds, 1 + other),
        _ => bucket(n, 1 + other, seconds),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 20_000, ..ProptestConfig::with_cases(1_000) })]
    #[test]
    fn a_rule_decides_the_same_without_its_idle_limits(
        limits in prop::collection::vec(any_limit(), 2..4),
        steps in prop::collection::vec((0..1_500_000_u64, 0..4_u64, 0..10_u32), 1..60),
    ) {
        let idle = idle_limits(&limits);
        prop_assume!(!idle.is_empty());
        let rest = limits.iter().enumerate().filter(|(i, _)| idle.iter().all(|(idle, _)| idle != i));
        let rest: Vec<Limit> = rest.map(|(_, limit)| limit.clone()).collect();
        let (all, rest) = (Plan::new(limits), Plan::new(rest));
        let (mut with, mut without) = (State::default(), State::default());
        let mut now = 1_700_006_400 * SECOND;
        for (wait, hits, kind) in steps {
            now += wait;
            let op = if kind == 0 { Op::Refund(hits) } else { Op::Take(hits) };
            let allowed = all.charge(&mut with, now, op, None).decision.allowed;
            let expected = rest.charge(&mut without, now, op, None).decision.allowed;
            prop_assert_eq!(allowed, expected, "{:?} at {}", op, now);
        }
    }
}
