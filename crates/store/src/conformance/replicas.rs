//! Replicas with other numbers for one rule, as while a rollout or a reload goes on, and with an overlay
//! or a control of some of them.

use std::sync::Arc;

use super::charges::{charge, take};
use crate::charge::{Charge, Key, Role};
use crate::store::Store;
use weir_common::clock::ManualClock;
use weir_limit::{Algorithm, Gcra, Limit, Micros, Numbers, Op, Plan, SECOND, TokenBucket, Unit};

const DAY: Micros = 86_400 * SECOND;

/// Runs all of the suite about replicas with other numbers.
pub async fn conforms(store: &impl Store, clock: &ManualClock) {
    keeps_both_bursts_and_the_faster_rate(store, clock).await;
    changed_numbers_free_nothing(store, clock).await;
    refunds_lower_what_is_beyond_the_top(store).await;
}

fn gcra(n: u32, period: Micros, burst: u32) -> Limit {
    let gcra = Gcra::new(n, period, burst, 0).expect("numbers that fit");
    of(n, Algorithm::Gcra(gcra))
}

fn bucket(n: u32, capacity: u32) -> Limit {
    let (interval, strict, max_debt) = (DAY, false, 0);
    of(n, Algorithm::TokenBucket(TokenBucket { capacity, amount: n, interval, strict, max_debt }))
}

fn of(n: u32, algorithm: Algorithm) -> Limit {
    let lone = Limit::fixed_window(n, Unit::Day, 1).expect("a period");
    Limit { algorithm, charge_denied: false, ..lone }
}

/// The plan of a limit alone, and of one beside a limit that denies nothing.
fn plans(limit: &Limit) -> [Arc<Plan>; 2] {
    let other = Limit::fixed_window(u32::MAX, Unit::Year, 1).expect("a period");
    [vec![limit.clone()], vec![limit.clone(), other]].map(|limits| Arc::new(Plan::new(limits)))
}

/// Two replicas that a caller asks in turn admit together at most both bursts and what comes at the faster rate.
pub async fn keeps_both_bursts_and_the_faster_rate(store: &impl Store, clock: &ManualClock) {
    for (case, (one, two, most)) in [
        (gcra(10, DAY, 50), gcra(10, DAY, 5), 50),
        (gcra(60, 60 * SECOND, 20), gcra(600, 60 * SECOND, 20), 20 + 20 + 51),
        (gcra(10, DAY, 5), gcra(1_000, DAY, 5), 5 + 5 + 1),
        (bucket(10, 5), bucket(1_000, 5), 5),
    ]
    .into_iter()
    .enumerate()
    {
        for (alone, (one, two)) in plans(&one).into_iter().zip(plans(&two)).enumerate() {
            let value = format!("{case}-{alone}");
            let mut admitted = 0;
            for _ in 0..100 {
                for plan in [&one, &two] {
                    admitted += u32::from(take(store, "in-turn", &value, plan, 1).await.allowed);
                    clock.advance(25_000);
                }
            }
            assert!(admitted <= most, "{admitted} of {most}: {one:?} beside {two:?}");
        }
    }
}

/// A look or a denied hit while a limit has other numbers, by a reload or a control, refunds nothing.
pub async fn changed_numbers_free_nothing(store: &impl Store, clock: &ManualClock) {
    for (case, before) in [gcra(10, DAY, 5), bucket(10, 5)].into_iter().enumerate() {
        let control = Numbers { n: 1_000, burst: None };
        let controlled = before.with_numbers(control).expect("numbers that fit");
        let reloaded = if case == 0 { gcra(1_000, DAY, 5) } else { bucket(1_000, 5) };
        for (change, after) in [controlled, reloaded].into_iter().enumerate() {
            for (alone, (before, after)) in
                plans(&before).into_iter().zip(plans(&after)).enumerate()
            {
                for hits in [0, 1, 9] {
                    let value = format!("{case}-{change}-{alone}-{hits}");
                    assert!(take(store, "changed", &value, &before, 5).await.allowed);
                    clock.advance(SECOND);
                    assert!(!take(store, "changed", &value, &after, hits).await.allowed);
                    let left = take(store, "changed", &value, &before, 0).await;
                    assert_eq!((left.allowed, left.remaining), (false, 0), "{value}: {after:?}");
                }
            }
        }
    }
}

/// A refund of a limit whose burst is smaller than what was used refunds what its hits are worth; one to
/// a limit of 0 nothing.
pub async fn refunds_lower_what_is_beyond_the_top(store: &impl Store) {
    let (large, small, zero) = (gcra(10, DAY, 50), gcra(20, DAY, 5), gcra(0, DAY, 5));
    for (alone, large) in plans(&large).iter().enumerate() {
        let (small, zero) = (&plans(&small)[alone], &plans(&zero)[alone]);
        let value = alone.to_string();
        let entries = [("key", value.as_str())];
        let back = async |plan, hits| {
            let key = Key { domain: "beyond", entries: &entries };
            let op = Op::Refund(hits);
            let one = Charge { key, plan, op, hold: None, role: Role::Enforced };
            charge(store, &[one], false).await
        };
        assert!(take(store, "beyond", &value, large, 50).await.allowed);
        back(zero, 7).await;
        assert_eq!(take(store, "beyond", &value, large, 0).await.remaining, 0);
        back(small, 4).await;
        back(small, 2).await;
        assert_eq!(take(store, "beyond", &value, large, 0).await.remaining, 3);
    }
}
