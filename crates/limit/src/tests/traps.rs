//! Bugs that other rate limiters had.

use super::*;

/// GCRA with a burst of 1 allowed everything.
#[test]
fn gcra_with_a_burst_of_one_limits() {
    let mut driver = Driver::new(vec![gcra(10, SECOND, 1)]);
    assert!(driver.take(1).allowed);
    assert!(!driver.take(1).allowed);
    driver.now += 99_999;
    assert!(!driver.take(1).allowed);
    driver.now += 1;
    assert!(driver.take(1).allowed);
}

/// After a long pause more than the burst was allowed at once.
#[test]
fn after_a_long_pause_exactly_the_burst_is_allowed() {
    for limit in [gcra(5, SECOND, 7), bucket(7, 5, SECOND)] {
        let mut driver = Driver::new(vec![limit]);
        for _ in 0..3 {
            driver.now += 1_000_000 * SECOND;
            for left in (0..7).rev() {
                assert_eq!(driver.take(1).remaining, left);
            }
            assert!(!driver.take(1).allowed);
        }
    }
}

/// Fast rates had an interval of zero, and negative or huge numbers of remaining hits.
#[test]
fn a_million_a_second_is_a_million_a_second() {
    let n = 1_000_000;
    for limit in [gcra(n, SECOND, 10), bucket(10, 1, 1)] {
        let mut driver = Driver::new(vec![limit]);
        let mut admitted = 0;
        for _ in 0..100_000 {
            admitted += u32::from(driver.take(1).allowed) + u32::from(driver.take(1).allowed);
            driver.now += 1;
        }
        assert!((100_000..=100_010).contains(&admitted), "{admitted}");
    }
}

/// The wait was rounded down, so a retry after it was denied again.
#[test]
fn a_retry_after_the_longest_wait_of_several_limits_is_allowed() {
    let mut driver =
        Driver::new(vec![gcra(7, SECOND, 1), log(3, 10 * SECOND), fixed(9, 60 * SECOND)]);
    for _ in 0..200 {
        let decision = driver.take(1);
        if let Some(wait) = decision.retry_after {
            assert!(!driver.would_allow(wait - 1, 1));
            driver.now += wait;
            assert!(driver.take(1).allowed);
        }
    }
}

/// Huge parameters overflowed or ended the process.
#[test]
fn huge_parameters_are_errors_or_exact() {
    assert!(Gcra::new(7, MAX_PERIOD_SECONDS * SECOND, u32::MAX, u32::MAX).is_err());
    assert!(Unit::Year.period(u32::MAX).is_none());
    assert!(Unit::Year.period(0).is_none());
    assert!(Unit::Year.period(100).is_some());
    let mut driver = Driver::new(vec![fixed(u32::MAX, MAX_PERIOD_SECONDS * SECOND)]);
    assert_eq!(driver.take(u64::MAX).remaining, 0);
    assert!(!driver.take(1).allowed);
    driver.now = Micros::MAX / 2;
    driver.take(1);
}

/// Denied hits were counted, so a client that retried too often was never allowed.
#[test]
fn denied_hits_leave_no_trace_in_a_log() {
    let mut driver = Driver::new(vec![log(2, SECOND)]);
    let mut admitted = 0;
    for _ in 0..1_000 {
        admitted += u32::from(driver.take(1).allowed);
        driver.now += SECOND / 100;
    }
    assert_eq!(admitted, 20);
    assert_eq!(driver.state.log_len(), 2);
}

/// A ring without traffic for longer than its span still counted its old slots.
#[test]
fn idle_laps_count_zero() {
    let ring = BucketedWindow { n: 5, period: 10 * SECOND, buckets: 10 };
    let mut driver = Driver::new(vec![limit(5, Algorithm::BucketedWindow(ring), false)]);
    assert!(driver.take(5).allowed);
    for idle in [11, 12, 110, 1_100] {
        driver.now += idle * SECOND;
        assert!(driver.take(5).allowed, "after {idle} s");
    }
}

#[test]
fn a_ring_counts_any_recent_span_without_counting_a_slot_twice() {
    let ring = BucketedWindow { n: 100, period: 10 * SECOND, buckets: 10 };
    let mut driver = Driver::new(vec![limit(100, Algorithm::BucketedWindow(ring), false)]);
    for second in 0..10 {
        driver.now = NOON + second * SECOND;
        driver.take(1);
    }
    let spans = [1, SECOND, 5 * SECOND, 10 * SECOND];
    let state = driver.plan.inspect(&driver.state, driver.now, &spans);
    let counts: Vec<u64> = state.counts.into_iter().map(|count| count.unwrap().count).collect();
    assert_eq!(counts, [1, 2, 6, 10]);
}

/// A first charge of more than the limit was admitted, and the remaining hits underflowed.
#[test]
fn a_first_charge_of_more_than_the_limit_is_denied() {
    for limit in [fixed(5, SECOND), log(5, SECOND), gcra(5, SECOND, 5), bucket(5, 5, SECOND)] {
        let mut driver = Driver::new(vec![limit]);
        let decision = driver.take(6);
        assert_eq!((decision.allowed, decision.remaining, decision.retry_after), (false, 5, None));
    }
}

/// A limit that was changed in an open window stayed the same, or started over.
#[test]
fn changing_n_keeps_the_counts() {
    for with in [fixed, log, |n, p| gcra(n, p, n)] {
        let mut driver = Driver::new(vec![with(5, 60 * SECOND)]);
        assert!(driver.take(5).allowed && !driver.take(1).allowed);
        let raised = Plan::new(vec![with(8, 60 * SECOND)]);
        assert_eq!(raised.shape(), driver.plan.shape());
        driver.plan = raised;
        // The state of a gcra is not a count but the time until it is empty, which n does not change.
        let keeps_time = matches!(driver.plan.limits()[0].algorithm, Algorithm::Gcra(_));
        assert_eq!(driver.take(1).allowed, !keeps_time);
        driver.plan = Plan::new(vec![with(3, 60 * SECOND)]);
        assert!(!driver.take(1).allowed);
        assert_ne!(Plan::new(vec![with(5, 61 * SECOND)]).shape(), driver.plan.shape());
    }
}

/// Clients with clocks ten seconds apart refilled each other's buckets.
#[test]
fn two_clocks_ten_seconds_apart_refill_nothing() {
    let minute = 60 * SECOND;
    for limit in [fixed(5, minute), log(5, minute), gcra(5, minute, 5), bucket(5, 5, minute)] {
        let mut driver = Driver::new(vec![limit]);
        let mut admitted = 0;
        for i in 0..1_000_u64 {
            // Each clock advances by 2 ms per charge.
            driver.now = NOON + i * 1_000 + if i % 2 == 0 { 10 * SECOND } else { 0 };
            admitted += u64::from(driver.take(1).allowed);
        }
        // Eleven seconds pass on the two clocks together: less than one hit drains in.
        assert_eq!(admitted, 5);
    }
}

#[test]
fn a_limit_of_zero_blocks_all() {
    let ring = BucketedWindow { n: 0, period: SECOND, buckets: 5 };
    let sliding = SlidingWindow { n: 0, period: SECOND };
    let bucket = TokenBucket { capacity: 5, amount: 1, interval: 1, strict: true, max_debt: 9 };
    let gcra = Gcra::new(0, SECOND, 5, 5).expect("numbers that fit");
    let hold = Concurrency { n: 0, timeout: SECOND, hold_id: None };
    for limit in [
        fixed(0, SECOND),
        log(0, SECOND),
        limit(0, Algorithm::BucketedWindow(ring), true),
        limit(0, Algorithm::SlidingWindow(sliding), true),
        limit(0, Algorithm::TokenBucket(bucket), true),
        limit(0, Algorithm::Gcra(gcra), true),
        limit(0, Algorithm::Concurrency(hold), true),
    ] {
        let mut driver = Driver::new(vec![limit]);
        for _ in 0..10 {
            let decision = driver.take(1);
            assert_eq!(
                (decision.allowed, decision.remaining, decision.retry_after),
                (false, 0, None)
            );
            driver.now += SECOND / 3;
        }
    }
}

/// Hits in flight overflowed.
#[test]
fn hits_in_flight_saturate() {
    let concurrency = Concurrency { n: 3, timeout: 60 * SECOND, hold_id: None };
    let mut driver = Driver::new(vec![limit(3, Algorithm::Concurrency(concurrency), true)]);
    for _ in 0..(1 << 20) + 10 {
        driver.take(u32::MAX.into());
    }
    let charged = driver.take(0);
    assert_eq!((charged.allowed, charged.used_before), (false, 1 << 52));
}

/// After the clock stepped back, hits that had been refunded were owed again.
#[test]
fn refunded_hits_are_not_owed_after_a_step_back() {
    for limit in [gcra(1, 60 * SECOND, 1), bucket(1, 1, 60 * SECOND), fixed(1, 60 * SECOND)] {
        let mut driver = Driver::new(vec![limit]);
        assert!(driver.take(1).allowed);
        driver.charge(Op::Refund(1));
        driver.now -= 30 * SECOND;
        assert!(driver.take(1).allowed, "{:?}", driver.plan);
    }
}

/// If n is changed, a gcra keeps a time, as documented.
#[test]
fn changing_n_of_a_gcra_keeps_the_time_until_it_is_empty() {
    let minute = |n| gcra(n, 60 * SECOND, n);
    for (before, hits, after, left) in [(5, 3, 10, 4), (10, 6, 5, 2), (10, 10, 0, 0)] {
        let mut driver = Driver::new(vec![minute(before)]);
        let reset = driver.take(hits).reset_after;
        driver.plan = Plan::new(vec![minute(after)]);
        let look = driver.take(0);
        assert_eq!((look.remaining, look.reset_after), (left, reset), "{before} to {after}");
    }
}
