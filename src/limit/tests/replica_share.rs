//! The parts of replicas, against the whole.

use proptest::prelude::*;

use super::*;
use crate::limit::plan::Op;

fn tokens(capacity: u32, amount: u32, interval: Micros) -> Limit {
    let bucket = TokenBucket { capacity, amount, interval, strict: false, max_debt: 0 };
    limit(amount, Algorithm::TokenBucket(bucket), false)
}

fn cells(n: u32, period: Micros, burst: u32) -> Limit {
    limit(n, Algorithm::Gcra(Gcra::new(n, period, burst, 0).unwrap()), false)
}

/// Takes one hit whenever one is to be had, over a span; how many were.
fn flood(plan: &Plan, span: Micros) -> u64 {
    let (mut state, mut now, mut admitted) = (State::default(), NOON, 0);
    while now < NOON + span {
        let decision = plan.charge(&mut state, now, Op::Take(1), None).decision;
        admitted += u64::from(decision.allowed);
        match decision.retry_after {
            Some(wait) => now += wait,
            None if decision.allowed => {}
            None => break,
        }
    }
    admitted
}

fn part(limit: Limit, replicas: u32) -> Plan {
    Plan::new(vec![limit]).replica_share(replicas)
}

#[test]
fn windows_are_divided_and_rounded_up() {
    let minute = 60 * SECOND;
    let algorithms = |n| {
        [
            Algorithm::FixedWindow(FixedWindow { n, period: minute, calendar: None }),
            Algorithm::SlidingWindow(SlidingWindow { n, period: minute }),
            Algorithm::SlidingLog(SlidingLog { n, period: minute }),
            Algorithm::BucketedWindow(BucketedWindow { n, period: minute, buckets: 6 }),
            Algorithm::Concurrency(Concurrency { n, timeout: minute, hold_id: None }),
        ]
    };
    for (n, replicas, expected) in [(10, 3, 4), (9, 3, 3), (1, 10, 1), (0, 10, 0), (5, 1, 5)] {
        for algorithm in algorithms(n) {
            let name = algorithm.name();
            let part = part(limit(n, algorithm, false), replicas);
            assert_eq!(part.limits()[0].requests_per_unit, expected);
            assert_eq!(flood(&part, SECOND), u64::from(expected), "{name} of {n} by {replicas}");
        }
    }
}

#[test]
fn no_replicas_are_one() {
    let whole = Plan::new(vec![cells(60, 60 * SECOND, 10), tokens(5, 2, SECOND), fixed(3, SECOND)]);
    assert_eq!(whole.replica_share(0), whole);
    assert_eq!(whole.replica_share(1), whole);
}

#[test]
fn what_cannot_be_divided_comes_back_later() {
    let minute = 60 * SECOND;
    // One a minute among ten: one at once, the next after ten minutes.
    for limit in [tokens(1, 1, minute), cells(1, minute, 1)] {
        let part = part(limit, 10);
        assert_eq!(flood(&part, 10 * minute), 1);
        assert_eq!(flood(&part, 10 * minute + 1), 2);
    }
    // Three tokens a minute among two: two each 80 seconds.
    let [Limit { algorithm: Algorithm::TokenBucket(bucket), .. }] =
        *part(tokens(4, 3, minute), 2).limits()
    else {
        panic!("a share is of the same algorithm");
    };
    assert_eq!((bucket.capacity, bucket.amount, bucket.interval), (2, 2, 80 * SECOND));
    // A refill of more than a bucket holds is as good as one that fills it.
    assert_eq!(flood(&part(tokens(1, 10, minute), 5), 5 * minute), 1);
}

#[test]
fn a_part_of_the_longest_burst_is_not_the_whole() {
    let year = 365 * 86_400 * SECOND;
    let debt = Gcra::new(1, year, 500, 500).map(Algorithm::Gcra).unwrap();
    for (whole, burst) in [(cells(1, year, 1_000), 333), (limit(1, debt, true), 167)] {
        let part = part(whole, 3);
        let Algorithm::Gcra(gcra) = part.limits()[0].algorithm else { panic!("a gcra") };
        assert_eq!((gcra.burst(), gcra.period()), (burst, 3 * year));
    }
}

#[test]
fn huge_numbers_stay_in_range() {
    let longest = MAX_PERIOD_SECONDS * SECOND;
    for replicas in [2, 1_000, u32::MAX] {
        for limit in [tokens(u32::MAX, 1, longest), cells(1, longest, 1), cells(7, longest, 70)] {
            let part = part(limit, replicas);
            let mut state = State::default();
            assert!(part.charge(&mut state, NOON, Op::Take(1), None).decision.allowed);
        }
    }
}

proptest! {
    #[test]
    fn all_parts_together_are_about_the_whole(
        burst in 1_u32..40,
        n in 1_u32..40,
        seconds in 1_u64..100,
        replicas in 1_u32..12,
    ) {
        let period = seconds * SECOND;
        let span = 500 * period;
        let steady = u64::from(n.min(burst)) * 500;
        for limit in [tokens(burst, n, period), cells(n, period, burst)] {
            let steady = match limit.algorithm {
                Algorithm::Gcra(_) => u64::from(n) * 500,
                _ => steady,
            };
            let parts = flood(&part(limit, replicas), span) * u64::from(replicas);
            let extra = u64::from(burst) + 2 * u64::from(replicas) + u64::from(n);
            prop_assert!(parts <= steady + extra, "{parts} for {steady}");
            prop_assert!(parts + extra >= steady, "{parts} for {steady}");
        }
    }
}
