//! The shares of replicas against the whole limit.

use proptest::prelude::*;

use super::*;

/// Takes one hit whenever it is allowed, over a span; returns how many were admitted.
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

fn share(limit: Limit, replicas: u32) -> Plan {
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
            let share = share(limit(n, algorithm, false), replicas);
            assert_eq!(share.limits()[0].requests_per_unit, expected);
            assert_eq!(flood(&share, SECOND), u64::from(expected), "{name} of {n} by {replicas}");
        }
    }
}

#[test]
fn no_replicas_count_as_one() {
    let whole = Plan::new(vec![gcra(60, 60 * SECOND, 10), bucket(5, 2, SECOND), fixed(3, SECOND)]);
    assert_eq!(whole.replica_share(0), whole);
    assert_eq!(whole.replica_share(1), whole);
}

#[test]
fn indivisible_hits_come_back_later() {
    let minute = 60 * SECOND;
    // One a minute for ten replicas: one at once, the next after ten minutes.
    for limit in [bucket(1, 1, minute), gcra(1, minute, 1)] {
        let share = share(limit, 10);
        assert_eq!(flood(&share, 10 * minute), 1);
        assert_eq!(flood(&share, 10 * minute + 1), 2);
    }
    // Three tokens a minute for two replicas: two each 80 seconds.
    let [Limit { algorithm: Algorithm::TokenBucket(divided), .. }] =
        *share(bucket(4, 3, minute), 2).limits()
    else {
        panic!("a share is of the same algorithm");
    };
    assert_eq!((divided.capacity, divided.amount, divided.interval), (2, 2, 80 * SECOND));
    // A refill of more than the capacity equals one that fills the bucket.
    assert_eq!(flood(&share(bucket(1, 10, minute), 5), 5 * minute), 1);
}

#[test]
fn a_share_of_the_longest_burst_is_not_the_whole() {
    let year = 365 * 86_400 * SECOND;
    let debt = Gcra::new(1, year, 500, 500).map(Algorithm::Gcra).unwrap();
    for (whole, burst) in [(gcra(1, year, 1_000), 333), (limit(1, debt, true), 167)] {
        let share = share(whole, 3);
        let Algorithm::Gcra(gcra) = share.limits()[0].algorithm else { panic!("a gcra") };
        assert_eq!((gcra.burst(), gcra.period()), (burst, 3 * year));
    }
}

#[test]
fn shares_of_a_given_shape_continue_each_others_states() {
    let plan = |n, seconds, burst| {
        let gcra = Gcra::continuing(n, seconds * SECOND, burst).map(Algorithm::Gcra).unwrap();
        Plan::with_shape(limit(n, gcra, false), "given")
    };
    for replicas in [1, 2, 3, 10] {
        let [first, second] = [plan(3, 60, 30), plan(1_000_003, 61, 5)];
        let [first, second] = [&first, &second].map(|plan| plan.replica_share(replicas));
        assert_eq!([first.shape(), second.shape()], ["given"; 2]);
        assert_eq!(first.limit_id(0), second.limit_id(0));
        let mut state = State::default();
        let take = |plan: &Plan, state: &mut State, hits| {
            plan.charge(state, NOON, Op::Take(hits), None).decision
        };
        for _ in 0..30_u32.div_ceil(replicas) {
            assert!(take(&first, &mut state, 1).allowed);
        }
        let denied = take(&first, &mut state, 1);
        assert!(!denied.allowed);
        let looked = take(&second, &mut state, 0);
        assert!(!looked.allowed && looked.reset_after.abs_diff(denied.reset_after) <= 1);
    }
}

#[test]
fn huge_numbers_stay_in_range() {
    let longest = MAX_PERIOD_SECONDS * SECOND;
    for replicas in [2, 1_000, u32::MAX] {
        for limit in [bucket(u32::MAX, 1, longest), gcra(1, longest, 1), gcra(7, longest, 70)] {
            let share = share(limit, replicas);
            let mut state = State::default();
            assert!(share.charge(&mut state, NOON, Op::Take(1), None).decision.allowed);
        }
    }
}

proptest! {
    #[test]
    fn all_shares_together_are_about_the_whole(
        burst in 1_u32..40,
        n in 1_u32..40,
        seconds in 1_u64..100,
        replicas in 1_u32..12,
    ) {
        let period = seconds * SECOND;
        let span = 500 * period;
        let steady = u64::from(n.min(burst)) * 500;
        for limit in [bucket(burst, n, period), gcra(n, period, burst)] {
            let steady = match limit.algorithm {
                Algorithm::Gcra(_) => u64::from(n) * 500,
                _ => steady,
            };
            let shares = flood(&share(limit, replicas), span) * u64::from(replicas);
            let extra = u64::from(burst) + 2 * u64::from(replicas) + u64::from(n);
            prop_assert!(shares <= steady + extra, "{shares} for {steady}");
            prop_assert!(shares + extra >= steady, "{shares} for {steady}");
        }
    }
}
