//! Worked examples.

use super::*;
use crate::algorithm::{Hits, LimitAlgorithm};
use crate::algorithms::sliding_window;

#[test]
fn sliding_window_weighs_the_window_before() {
    let check = |n| {
        let limit = SlidingWindow { n, period: 60 * SECOND };
        let index = NOON / (60 * SECOND);
        let state = sliding_window::State { index, previous: 9, current: 5 };
        let now = NOON + 15 * SECOND;
        let (log, hits) = (HitLog::default(), Hits { count: 1, hold: 0 });
        let allowed = limit.verdict(&state, &log, now, hits).allowed;
        (allowed, limit.levels(&state, &log, now).remaining)
    };
    // 9 x 45/60 + 5 = 11.75.
    assert_eq!(check(12), (false, 0));
    assert_eq!(check(13), (true, 1));
}

#[test]
fn sliding_log_of_two_limits() {
    let mut driver = Driver::new(vec![log(1, SECOND), log(5, 60 * SECOND)]);
    // Noon is 12:33:20 here, so that 12:33:35 is 15 s after it.
    for second in [15, 17, 54, 66, 68] {
        driver.now = NOON + second * SECOND;
        assert!(driver.take(1).allowed);
    }
    driver.now = NOON + 71 * SECOND;
    let decision = driver.take(1);
    assert!(!decision.allowed);
    assert_eq!((decision.limit, decision.retry_after), (1, Some(4 * SECOND)));
    driver.now = NOON + 80 * SECOND;
    assert!(driver.take(1).allowed);
}

#[test]
fn many_stamps_of_a_sliding_log_expire_at_once() {
    let mut driver = Driver::new(vec![log(1_000, SECOND)]);
    assert!(driver.take(600).allowed);
    driver.now += SECOND / 2;
    assert!(driver.take(400).allowed);
    driver.now += SECOND / 2 - 1;
    assert!(!driver.take(1).allowed);
    assert_eq!(driver.state.log_len(), 1_000);
    driver.now += 1;
    assert!(!driver.take(601).allowed);
    assert_eq!(driver.state.log_len(), 400);
    assert!(driver.take(600).allowed);
    driver.now += SECOND;
    assert_eq!(driver.take(0).remaining, 1_000);
    assert_eq!(driver.state.log_len(), 0);
}

#[test]
fn ten_failed_logins_then_one_an_hour() {
    let mut driver = Driver::new(vec![bucket(10, 1, 3_600 * SECOND)]);
    for left in (0..10).rev() {
        assert_eq!(driver.take(1).remaining, left);
    }
    assert_eq!(driver.take(1).retry_after, Some(3_600 * SECOND));
    driver.now += 3_600 * SECOND;
    assert!(driver.take(1).allowed);
    assert!(!driver.take(1).allowed);
}

#[test]
fn a_strict_bucket_waits_until_the_client_is_quiet() {
    let strict =
        TokenBucket { capacity: 1, amount: 1, interval: 10 * SECOND, strict: true, max_debt: 0 };
    let mut driver = Driver::new(vec![limit(1, Algorithm::TokenBucket(strict), false)]);
    assert!(driver.take(1).allowed);
    for _ in 0..20 {
        driver.now += 5 * SECOND;
        assert_eq!(driver.take(1).retry_after, Some(10 * SECOND));
    }
    driver.now += 10 * SECOND;
    assert!(driver.take(1).allowed);
}

#[test]
fn ten_hits_a_second_get_what_the_slower_limits_allow() {
    let (minute, hour, day) = (60 * SECOND, 3_600 * SECOND, 86_400 * SECOND);
    for limits in [
        vec![fixed(1, SECOND), fixed(20, minute), fixed(200, hour), fixed(800, day)],
        vec![log(1, SECOND), log(20, minute), log(200, hour), log(800, day)],
    ] {
        // The start of a day is the start of a window of every limit.
        let mut driver = Driver::new(limits);
        driver.now = NOON - NOON % day;
        let start = driver.now;
        let (mut first_hour, mut all) = (0, 0);
        while driver.now < start + day {
            let admitted = u32::from(driver.take(1).allowed);
            all += admitted;
            if driver.now < start + hour {
                first_hour += admitted;
            }
            driver.now += SECOND / 10;
        }
        assert_eq!((first_hour, all), (200, 800));
    }
}

#[test]
fn a_gcra_with_long_ticks_waits_to_the_microsecond() {
    let year = 365 * 86_400 * SECOND;
    for (limit, tick) in [(gcra(7, year, 1_000), 1_000), (gcra(10_007, year, 1_000_000), 1_000_000)]
    {
        let Algorithm::Gcra(made) = &limit.algorithm else { panic!("a gcra") };
        assert_eq!(made.tick(), tick);
        let mut driver = Driver::new(vec![limit.clone()]);
        driver.now += tick / 3;
        assert!(driver.take(made.burst()).allowed);
        driver.now += tick / 2;
        let charged = driver.charge(Op::Take(1));
        let wait = charged.decision.retry_after.expect("a wait");
        assert!(driver.would_allow(wait, 1) && !driver.would_allow(wait - 1, 1));
        let reset = charged.decision.reset_after;
        assert_eq!(charged.expires, driver.now + reset);
        assert!(driver.would_allow(reset, made.burst()));
        assert!(!driver.would_allow(reset - 1, made.burst()));
    }
}

#[test]
fn calendar_windows_end_with_the_calendar() {
    let calendar = Calendar::new(Unit::Month, "UTC").map(std::sync::Arc::new).ok();
    let period = Unit::Month.period(1).unwrap_or_default();
    let window = FixedWindow { n: 1, period, calendar };
    let mut driver = Driver::new(vec![limit(1, Algorithm::FixedWindow(window), true)]);
    let decision = driver.take(1);
    // Noon of the fifteenth of November.
    assert_eq!(decision.reset_after, (15 * 24 + 12) * 3_600 * SECOND);
    assert!(!driver.take(1).allowed);
    driver.now += decision.reset_after;
    assert!(driver.take(1).allowed);
}
