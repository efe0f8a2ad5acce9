//! Several limits of one rule: what is charged, and when.

use proptest::prelude::*;

use super::*;

#[test]
fn nothing_is_charged_if_one_limit_denies() {
    let mut driver = Driver::new(vec![fixed(1, SECOND), fixed(3, 60 * SECOND)]);
    for _ in 0..10 {
        driver.take(1);
    }
    driver.now += SECOND;
    assert_eq!(driver.take(1).remaining, 0);
    driver.now += SECOND;
    assert!(driver.take(1).allowed);
    driver.now += SECOND;
    let decision = driver.take(1);
    assert_eq!((decision.allowed, decision.limit), (false, 1));
}

#[test]
fn the_binding_limit_waits_longest_or_has_least_left() {
    let mut driver = Driver::new(vec![fixed(2, SECOND), fixed(2, 60 * SECOND), fixed(9, SECOND)]);
    // Among equals, the one that resets last.
    assert_eq!(driver.take(1).limit, 1);
    driver.take(1);
    let decision = driver.take(1);
    assert_eq!((decision.limit, decision.retry_after), (1, Some(60 * SECOND)));
    // Never is the longest wait.
    assert_eq!(driver.take(5).retry_after, None);
}

#[test]
fn limits_that_charge_denied_hits_do_whichever_limit_denied() {
    let mut counting = fixed(100, 60 * SECOND);
    counting.charge_denied = true;
    let mut driver = Driver::new(vec![fixed(1, 60 * SECOND), counting, fixed(50, 60 * SECOND)]);
    for _ in 0..10 {
        driver.take(1);
    }
    driver.plan = Plan::new(vec![
        fixed(100, 60 * SECOND),
        driver.plan.limits()[1].clone(),
        fixed(100, 60 * SECOND),
    ]);
    let decision = driver.take(0);
    assert_eq!((decision.limit, decision.remaining), (1, 90));
}

#[test]
fn a_look_is_denied_beyond_the_limit_or_if_it_is_full() {
    let mut counting = fixed(2, SECOND);
    counting.charge_denied = true;
    let mut driver = Driver::new(vec![counting]);
    driver.take(2);
    assert!(driver.take(0).allowed, "exactly full still passes, as in the reference");
    driver.take(1);
    assert!(!driver.take(0).allowed);
    let mut driver = Driver::new(vec![fixed(2, SECOND)]);
    driver.take(2);
    assert!(!driver.take(0).allowed);
}

#[test]
fn limits_in_shadow_mode_only_count() {
    let mut shadow = fixed(1, 60 * SECOND);
    shadow.shadow_mode = true;
    let mut driver = Driver::new(vec![fixed(3, 60 * SECOND), shadow]);
    assert_eq!(driver.take(1).would_deny, 0);
    let decision = driver.take(1);
    assert_eq!((decision.allowed, decision.limit, decision.would_deny), (true, 0, 0b10));
    driver.take(1);
    let decision = driver.take(1);
    assert_eq!((decision.allowed, decision.would_deny), (false, 0b10));
}

#[test]
fn debt_is_carried_and_capped() {
    let bucket =
        TokenBucket { capacity: 10, amount: 1, interval: SECOND, strict: false, max_debt: 5 };
    let gcra = Gcra::new(1, SECOND, 10, 5).expect("numbers that fit");
    for algorithm in [Algorithm::TokenBucket(bucket), Algorithm::Gcra(gcra)] {
        let mut driver = Driver::new(vec![limit(1, algorithm, true)]);
        assert!(driver.take(9).allowed);
        // Reported afterwards: it exceeds the limit and is owed.
        assert!(!driver.take(1_000).allowed);
        assert!(!driver.take(0).allowed);
        assert_eq!(driver.take(0).reset_after, 15 * SECOND);
        driver.now += 5 * SECOND;
        assert!(driver.take(0).allowed);
        driver.now += SECOND;
        assert!(driver.take(1).allowed);
    }
}

fn concurrency(n: u32, hold_id: Option<&str>) -> Limit {
    let hold_id = hold_id.map(Into::into);
    let charge_denied = hold_id.is_none();
    let algorithm = Algorithm::Concurrency(Concurrency { n, timeout: 60 * SECOND, hold_id });
    Limit { unit: None, ..limit(n, algorithm, charge_denied) }
}

#[test]
fn without_ids_denials_are_charged_and_released() {
    let mut driver = Driver::new(vec![concurrency(2, None)]);
    assert!(driver.take(1).allowed && driver.take(1).allowed);
    // Denied, and its end is reported all the same.
    assert!(!driver.take(1).allowed);
    driver.charge(Op::Refund(1));
    assert!(!driver.take(1).allowed);
    driver.charge(Op::Refund(1));
    driver.charge(Op::Refund(1));
    assert!(driver.take(1).allowed);
    // Lost ends are cleared only without traffic.
    driver.now += 59 * SECOND;
    assert!(!driver.take(1).allowed);
    driver.now += 59 * SECOND;
    assert!(!driver.take(1).allowed);
    driver.now += 60 * SECOND;
    assert!(driver.take(2).allowed);
}

#[test]
fn a_hold_is_released_by_its_id_or_expires() {
    let plan = Plan::new(vec![concurrency(2, Some("request_id")), fixed(100, SECOND)]);
    assert_eq!(plan.hold_id(), Some("request_id"));
    let mut state = State::default();
    let mut charge_at = |seconds: u64, op, id| {
        plan.charge(&mut state, NOON + seconds * SECOND, op, Some(id)).decision
    };
    assert!(charge_at(0, Op::Take(1), "a").allowed);
    assert!(charge_at(30, Op::Take(1), "b").allowed);
    let denied = charge_at(31, Op::Take(1), "c");
    assert_eq!((denied.allowed, denied.retry_after), (false, Some(29 * SECOND)));
    charge_at(31, Op::Refund(1), "c");
    assert!(!charge_at(31, Op::Take(1), "d").allowed);
    charge_at(32, Op::Refund(1), "b");
    assert!(charge_at(32, Op::Take(1), "e").allowed);
    // Under steady traffic the first expires, and no other.
    assert!(!charge_at(59, Op::Take(1), "f").allowed);
    assert!(charge_at(60, Op::Take(1), "g").allowed);
    assert!(!charge_at(91, Op::Take(1), "h").allowed);
    assert!(charge_at(92, Op::Take(1), "i").allowed);
}

#[test]
fn taking_an_id_again_replaces_its_hold() {
    let plan = Plan::new(vec![concurrency(3, Some("request_id"))]);
    let mut state = State::default();
    let mut charge_at = |seconds: u64, op, id| {
        plan.charge(&mut state, NOON + seconds * SECOND, op, Some(id)).decision
    };
    let mut take = |seconds, hits, id| {
        let decision = charge_at(seconds, Op::Take(hits), id);
        (decision.allowed, decision.remaining)
    };
    assert_eq!(take(0, 2, "a"), (true, 1));
    assert_eq!(take(10, 2, "a"), (true, 1), "it is not counted twice");
    assert_eq!(take(20, 1, "b"), (true, 0));
    assert_eq!(take(30, 1, "a"), (true, 1), "also where there was no room for another");
    assert_eq!(take(40, 2, "a"), (true, 0));
    assert_eq!(take(40, 3, "a"), (false, 0), "only its own hold is replaced");
    assert_eq!(take(40, 0, "a"), (true, 0));
    assert_eq!(take(40, 0, "c"), (false, 0));
    // The denied one did not change the hold.
    assert_eq!(take(70, 1, "c"), (false, 0), "it started at 40");
    assert_eq!(take(80, 1, "c"), (true, 0), "b lapsed");
    charge_at(80, Op::Refund(2), "a");
    assert_eq!(charge_at(80, Op::Refund(2), "a").remaining, 2, "there was one hold of 2");
}

#[test]
fn only_a_concurrency_limit_gets_hits_back() {
    let mut driver = Driver::new(vec![concurrency(5, None), fixed(2, SECOND)]);
    driver.take(1);
    driver.take(1);
    driver.charge(Op::Refund(1));
    assert!(!driver.take(1).allowed);
}

#[test]
fn shapes_differ_where_states_do() {
    let p = 60 * SECOND;
    let plans = [
        vec![fixed(1, p)],
        vec![fixed(1, p), fixed(1, p)],
        vec![fixed(1, SECOND)],
        vec![log(1, p)],
        vec![gcra(1, p, 1)],
        vec![bucket(1, 1, p)],
        vec![limit(1, Algorithm::SlidingWindow(SlidingWindow { n: 1, period: p }), false)],
        vec![concurrency(1, None)],
        vec![concurrency(1, Some("id"))],
    ];
    let shapes: std::collections::HashSet<String> =
        plans.iter().map(|limits| Plan::new(limits.clone()).shape().to_owned()).collect();
    assert_eq!(shapes.len(), plans.len());
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let period = prop_oneof![Just(SECOND), Just(10 * SECOND), Just(7_777)];
    (0_usize..6, 1_u32..6, period, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
        |(kind, n, period, charge_denied, shadow_mode)| {
            let made = match kind {
                0 => fixed(n, period),
                1 => log(n, period),
                2 => gcra(n, period, n + 1),
                3 => bucket(n, 1, period),
                4 => limit(n, Algorithm::SlidingWindow(SlidingWindow { n, period }), false),
                _ => {
                    let ring = BucketedWindow { n, period, buckets: 4 };
                    limit(n, Algorithm::BucketedWindow(ring), false)
                }
            };
            let charge_denied = charge_denied && kind != 1;
            Limit { charge_denied, shadow_mode, ..made }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Several limits of a rule answer as each would alone, and are charged all or none.
    #[test]
    fn limits_of_a_rule_are_charged_together(
        limits in prop::collection::vec(any_limit(), 1..5),
        schedule in prop::collection::vec((0_u64..3_000_000, 0_u64..4), 1..50),
    ) {
        let mut all = Driver::new(limits.clone());
        all.plan = all.plan.with_near_limit_ratio(Some(0.7));
        let mut alone: Vec<Driver> = limits
            .iter()
            .map(|limit| Driver::new(vec![Limit { shadow_mode: false, ..limit.clone() }]))
            .collect();
        for (wait, hits) in schedule {
            all.now += wait;
            alone.iter_mut().for_each(|driver| driver.now += wait);
            let verdicts: Vec<Decision> =
                alone.iter().map(|driver| driver.clone().take(hits)).collect();
            let vetoes = |i: usize| !limits[i].shadow_mode && !verdicts[i].allowed;
            let allowed = !(0..limits.len()).any(vetoes);
            let decision = all.take(hits);
            let only_shadows = limits.iter().all(|limit| limit.shadow_mode);
            prop_assert_eq!(decision.allowed, allowed);
            for (i, driver) in alone.iter_mut().enumerate() {
                // A limit that charges denied hits charges by itself; others only with all.
                let logs = matches!(limits[i].algorithm, Algorithm::SlidingLog(_));
                if allowed && !verdicts[i].allowed && logs {
                    // A shadow log reads what all logs of the rule share: every admitted hit.
                    driver.plan = Plan::new(vec![Limit { shadow_mode: true, ..limits[i].clone() }]);
                    driver.take(hits);
                    driver.plan =
                        Plan::new(vec![Limit { shadow_mode: false, ..limits[i].clone() }]);
                } else if allowed || limits[i].charge_denied || !verdicts[i].allowed {
                    driver.take(hits);
                }
                if limits[i].shadow_mode {
                    let would = decision.would_deny >> i & 1 == 1;
                    prop_assert_eq!(would, !verdicts[i].allowed);
                }
            }
            let binding = usize::from(decision.limit);
            let expected: Vec<NearLimit> = (0..limits.len())
                .filter(|i| allowed && hits > 0 && *i != binding)
                .filter(|i| only_shadows || !limits[*i].shadow_mode)
                .map(|i| (i, verdicts[i].used_before + hits))
                .filter(|(i, used)| *used >= (limits[*i].capacity() as f32 * 0.7).ceil() as u64)
                .map(|(i, used)| {
                    let look = alone[i].clone().charge(Op::Refund(0)).decision;
                    NearLimit { limit: i as u8, used, reset_after: look.reset_after }
                })
                .collect();
            let near = decision.near.iter().flat_map(|limits| limits.iter());
            let near = near.map(|near| {
                let limit = &limits[usize::from(near.limit)];
                let used = match limit.algorithm {
                    // The shared log has more stamps than a log of this limit alone.
                    Algorithm::SlidingLog(_) => {
                        near.used.min(u64::from(limit.requests_per_unit) + hits)
                    }
                    _ => near.used,
                };
                NearLimit { used, ..*near }
            });
            prop_assert_eq!(near.collect::<Vec<_>>(), expected);
            prop_assert!(only_shadows || !limits[binding].shadow_mode);
            if !allowed {
                prop_assert!(vetoes(binding));
                let longest = (0..limits.len()).filter(|&i| vetoes(i)).map(|i| {
                    alone[i].clone().take(hits).retry_after.unwrap_or(Micros::MAX)
                }).max();
                let same = decision.retry_after.unwrap_or(Micros::MAX);
                if limits.iter().all(|limit| !limit.charge_denied) {
                    prop_assert_eq!(Some(same), longest);
                }
            } else if !only_shadows {
                let least = alone.iter().zip(&limits)
                    .filter(|(_, limit)| !limit.shadow_mode)
                    .map(|(driver, _)| {
                        let mut look = driver.clone();
                        look.charge(Op::Refund(0)).decision.remaining
                    })
                    .min();
                prop_assert_eq!(Some(decision.remaining), least);
            }
        }
    }
}

#[test]
fn the_capacity_is_the_smallest_of_the_limits_that_enforce() {
    let capacity = |limits: Vec<Limit>| Plan::new(limits).capacity();
    let shadow = |n| Limit { shadow_mode: true, ..fixed(n, SECOND) };
    assert_eq!(capacity(vec![fixed(9, SECOND)]), 9);
    assert_eq!(capacity(vec![fixed(9, SECOND), fixed(7, 60 * SECOND), shadow(3)]), 7);
    assert_eq!(capacity(vec![shadow(4), shadow(3)]), 3);
    assert_eq!(capacity(vec![fixed(9, SECOND), fixed(0, SECOND)]), 0);
    let with_burst = |n| {
        let interval = SECOND;
        let bucket = TokenBucket { capacity: 5, amount: 1, interval, strict: false, max_debt: 0 };
        let gcra = Gcra::new(n, SECOND, 6, 0).unwrap();
        [bucket.into(), gcra.into()].map(|algorithm| Limit { algorithm, ..fixed(n, SECOND) })
    };
    assert_eq!(with_burst(9).map(|limit| limit.capacity()), [5, 6]);
    assert_eq!(with_burst(0).map(|limit| limit.capacity()), [0, 0]);
}
