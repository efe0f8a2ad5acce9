//! Reading states: counts against the whole history, and levels against decisions.

use proptest::prelude::*;

use super::*;

/// Time that passes before each charge, and its hits.
fn charges() -> impl Strategy<Value = Vec<(Micros, u64)>> {
    let pass = prop_oneof![
        3 => Just(0),
        3 => 0..SECOND,
        3 => 0..20 * SECOND,
        1 => 0..200 * SECOND,
        1 => Just(10_000 * SECOND),
    ];
    prop::collection::vec((pass, 0_u64..5), 1..60)
}

fn ring(n: u32, period: Micros, buckets: u32) -> Limit {
    limit(n, Algorithm::BucketedWindow(BucketedWindow { n, period, buckets }), false)
}

fn shadow(limit: Limit) -> Limit {
    Limit { shadow_mode: true, ..limit }
}

/// Returns the hits that came later than `span` before `now`.
fn recent(history: &[(Micros, u64)], now: Micros, span: Micros) -> u64 {
    history.iter().filter(|(t, _)| t + span > now).map(|(_, hits)| hits).sum()
}

fn counts(driver: &Driver, spans: &[Micros]) -> Vec<Result<SpanCount, CountError>> {
    driver.plan.inspect(&driver.state, driver.now, spans).counts
}

proptest! {
    #[test]
    fn a_log_counts_any_span_exactly(
        charges in charges(), n in 1_u32..12, spans in prop::collection::vec(1..=60 * SECOND, 4),
    ) {
        let mut driver = Driver::new(vec![log(n, 60 * SECOND)]);
        let mut history = Vec::new();
        for (pass, hits) in charges {
            driver.now += pass;
            if driver.take(hits).allowed {
                history.push((driver.now, hits));
            }
            for (span, count) in spans.iter().zip(counts(&driver, &spans)) {
                let count = count.unwrap();
                prop_assert_eq!(count.count, recent(&history, driver.now, *span));
                prop_assert_eq!((count.resolution, count.max_late, count.is_minimum), (0, 0, false));
            }
        }
    }

    #[test]
    fn a_ring_counts_any_span_to_one_sub_window(
        charges in charges(), n in 1_u32..12, buckets in 2_u32..70, offset in 0..60 * SECOND,
        spans in prop::collection::vec(prop_oneof![Just(1), 1..=60 * SECOND, Just(60 * SECOND)], 4),
    ) {
        let mut driver = Driver::new(vec![ring(n, 60 * SECOND, buckets)]);
        driver.now += offset;
        let mut history = Vec::new();
        for (pass, hits) in charges {
            driver.now += pass;
            if driver.take(hits).allowed {
                history.push((driver.now, hits));
            }
            for (span, count) in spans.iter().zip(counts(&driver, &spans)) {
                let SpanCount { count, resolution, max_late, is_minimum, .. } = count.unwrap();
                let least = recent(&history, driver.now, *span);
                let most = recent(&history, driver.now, *span + max_late);
                prop_assert!((least..=most).contains(&count), "{least} <= {count} <= {most}");
                prop_assert_eq!(resolution, (60 * SECOND).div_ceil(u64::from(buckets)));
                prop_assert!(max_late < resolution && !is_minimum);
            }
        }
    }

    /// Limits in shadow mode admit more than their log keeps.
    #[test]
    fn a_log_that_may_lack_hits_says_so(
        charges in charges(), enforced in 1_u32..6, watching in 1_u32..6,
        spans in prop::collection::vec(1..=60 * SECOND, 4),
    ) {
        let limits = vec![log(enforced, 10 * SECOND), shadow(log(watching, 60 * SECOND))];
        let mut driver = Driver::new(limits);
        let mut history = Vec::new();
        for (pass, hits) in charges {
            driver.now += pass;
            if driver.take(hits).allowed {
                history.push((driver.now, hits));
            }
            for (span, count) in spans.iter().zip(counts(&driver, &spans)) {
                let (count, actual) = (count.unwrap(), recent(&history, driver.now, *span));
                prop_assert!(count.count <= actual);
                prop_assert!(count.is_minimum || count.count == actual);
                prop_assert!(!count.is_minimum || *span > 10 * SECOND);
            }
        }
    }

    /// What is read of a limit is what a look answers, and its wait is exact.
    #[test]
    fn levels_are_those_of_decisions(charges in charges(), which in 0..7_usize) {
        let held = Concurrency { n: 4, timeout: 30 * SECOND, hold_id: None };
        let sliding = SlidingWindow { n: 4, period: 10 * SECOND };
        let limits = [
            fixed(4, 10 * SECOND),
            limit(4, Algorithm::SlidingWindow(sliding), false),
            log(4, 10 * SECOND),
            ring(4, 10 * SECOND, 5),
            bucket(4, 2, 10 * SECOND),
            gcra(4, 10 * SECOND, 3),
            limit(4, Algorithm::Concurrency(held), true),
        ];
        let mut driver = Driver::new(vec![limits[which].clone()]);
        for (pass, hits) in charges {
            driver.now += pass;
            driver.take(hits);
            let before = driver.state.clone();
            let read = driver.plan.inspect(&driver.state, driver.now, &[]);
            prop_assert_eq!(&driver.state, &before);
            let look = driver.clone().take(0);
            let LimitReading { used, remaining, reset_after, retry_after } = read.limits[0];
            let levels = (look.used_before, look.remaining, look.reset_after);
            prop_assert_eq!((used, remaining, reset_after), levels);
            prop_assert_eq!(retry_after.is_none(), driver.would_allow(0, 1));
            if let Some(wait) = retry_after {
                prop_assert!(driver.would_allow(wait, 1));
                prop_assert!(!driver.would_allow(wait - 1, 1));
            }
        }
    }
}

/// Of several limits that count, the most exact one is used that reaches back far enough.
#[test]
fn the_best_limit_counts() {
    let limits = vec![
        fixed(9, SECOND),
        ring(90, 60 * SECOND, 6),
        shadow(ring(90, 60 * SECOND, 60)),
        ring(900, 600 * SECOND, 10),
        log(9, 5 * SECOND),
    ];
    let mut driver = Driver::new(limits);
    assert!(driver.take(3).allowed);
    driver.now += 2 * SECOND;
    let spans = [SECOND, 5 * SECOND, 6 * SECOND, 60 * SECOND, 61 * SECOND, 600 * SECOND];
    let counts = counts(&driver, &spans).into_iter().map(|count| {
        let count = count.unwrap();
        (count.limit, count.count, count.resolution / SECOND)
    });
    let expected = [(4, 0, 0), (4, 3, 0), (2, 3, 1), (2, 3, 1), (3, 3, 60), (3, 3, 60)];
    assert_eq!(counts.collect::<Vec<_>>(), expected);
}

#[test]
fn spans_that_cannot_be_counted_say_why() {
    let error = |limits: Vec<Limit>, span| {
        counts(&Driver::new(limits), &[span])[0].clone().unwrap_err().to_string()
    };
    assert_eq!(
        error(vec![fixed(1, SECOND), gcra(1, SECOND, 1)], SECOND),
        "only sliding_log and bucketed_window count hits over spans, and the limits of this rule are \
         fixed_window, gcra: set the algorithm of one of them"
    );
    assert_eq!(
        error(vec![log(1, SECOND), ring(1, 60 * SECOND, 6)], 3_600 * SECOND + 500_000),
        "a span of 3600.5s is longer than 60s, the longest period over which this rule counts: use up \
         to that"
    );
    assert_eq!(error(vec![log(1, SECOND)], 0), "the span is 0: use a longer one, such as 5m");
}

#[test]
fn holds_show_how_many_and_when_the_oldest_expires() {
    let timeout = 30 * SECOND;
    for (hold_id, ids, left) in [(None, None, 30), (Some("id".into()), Some(2), 20)] {
        let concurrency = Concurrency { n: 9, timeout, hold_id };
        let mut driver = Driver::new(vec![limit(9, Algorithm::Concurrency(concurrency), false)]);
        let read =
            |driver: &Driver| driver.plan.inspect(&driver.state, driver.now, &[]).holds.unwrap();
        let none = HoldLevels { ids: ids.map(|_| 0), hits: 0, expires_after: 0 };
        assert_eq!(read(&driver), none);
        for id in ["a", "b"] {
            driver.plan.charge(&mut driver.state, driver.now, Op::Take(2), Some(id));
            driver.now += 10 * SECOND;
        }
        driver.now -= 10 * SECOND;
        let held = HoldLevels { ids, hits: 4, expires_after: left * SECOND };
        assert_eq!(read(&driver), held);
        driver.now += timeout;
        assert_eq!(read(&driver), none);
    }
}
