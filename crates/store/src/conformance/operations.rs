//! Operations beside taking and refunding: taking up to what is left, and adding.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;

use futures_util::future::join_all;

use super::charges::{charge, hourly, plan};
use crate::charge::{Charge, Key, Role};
use crate::store::Store;
use weir_common::clock::{Clock, ManualClock};
use weir_limit::{
    Algorithm, Decision, Gcra, Limit, Micros, Op, Plan, SECOND, State, TokenBucket, Undo, Unit,
    UpTo,
};

/// The n of all limits here.
const N: u32 = 6;

/// A lone limit of each algorithm, none of which charges denied hits.
fn plans() -> Vec<Arc<Plan>> {
    let (n, interval) = (N, Unit::Hour.period(1).unwrap());
    let (strict, max_debt) = (false, n);
    let bucket = TokenBucket { capacity: n, amount: 1, interval, strict, max_debt };
    let algorithms = hourly(n, bucket, Gcra::new(1, interval, n, n).unwrap());
    let lone = |algorithm| {
        let limit = Limit::fixed_window(n, Unit::Hour, 1).unwrap();
        vec![Limit { algorithm, charge_denied: false, ..limit }]
    };
    let two = |limits: Vec<Limit>| {
        let day = Limit { charge_denied: false, ..Limit::fixed_window(100, Unit::Day, 1).unwrap() };
        [limits, vec![day]].concat()
    };
    let each = algorithms.map(lone);
    each.iter().cloned().chain(each.iter().cloned().map(two)).map(Plan::new).map(Arc::new).collect()
}

/// Runs the part of the suite about operations.
pub async fn conforms(store: &impl Store, clock: &ManualClock) {
    takes_up_to_what_is_left(store).await;
    adds_whatever_the_limits_say(store).await;
    adds_even_if_the_batch_is_denied(store).await;
    undoes_a_part_where_it_still_counts(store, clock).await;
    starves_nobody_by_denied_batches(store, clock).await;
    takes_and_adds_as_plans_do(store, clock).await;
}

/// Charges one key, with `hold` for a plan that has holds.
async fn one(store: &impl Store, value: &str, plan: &Arc<Plan>, op: Op, hold: &str) -> Decision {
    one_of(store, value, plan, (op, hold), false).await
}

async fn one_of(
    store: &impl Store,
    value: &str,
    plan: &Arc<Plan>,
    (op, hold): (Op, &str),
    together: bool,
) -> Decision {
    let key = Key { domain: "operations", entries: &[("key", value)] };
    let hold = plan.hold_id().map(|_| hold);
    let one = Charge { key, plan, op, hold, role: Role::Enforced };
    charge(store, &[one], together).await.swap_remove(0)
}

fn up_to(least: u32, most: u32, share: u32) -> Op {
    Op::UpTo(UpTo { least, most, share: NonZeroU32::new(share).unwrap() })
}

/// From one hit up, as many are taken as the largest take would be allowed, or a share of them.
pub async fn takes_up_to_what_is_left(store: &impl Store) {
    for (i, plan) in plans().iter().enumerate() {
        for used in 0..=N {
            let before = async |value: &str| {
                let took = one(store, value, plan, Op::Take(used.into()), "before").await;
                assert!(took.allowed || used == 0, "{used} of {}", plan.shape());
            };
            let twin = format!("twin {i} {used}");
            before(&twin).await;
            let mut largest = 2 * N;
            while largest > 0
                && !one(store, &twin, plan, Op::Take(largest.into()), "it").await.allowed
            {
                largest -= 1;
            }
            for (least, most, share) in
                [(1, 2 * N, 1), (1, 2, 1), (1, 2 * N, 2), (3, 2 * N, 1), (0, 2 * N, 1), (0, 0, 1)]
            {
                let what = format!("{least} to {most} by {share} after {used}: {}", plan.shape());
                let value = format!("{i} {used} {least} {most} {share}");
                before(&value).await;
                let decision = one(store, &value, plan, up_to(least, most, share), "it").await;
                let left = largest.checked_sub(least);
                let part = |left: u32| if left / share < share { 0 } else { left / share };
                let granted = left.map_or(0, |left| least + part(left).min(most - least));
                assert_eq!(
                    (decision.allowed, decision.granted),
                    (left.is_some(), granted),
                    "{what}"
                );
                assert_eq!(decision.remaining, u64::from(N - used - granted), "{what}");
                let look = one(store, &value, plan, Op::Take(0), "look").await;
                assert_eq!(look.remaining, u64::from(N - used - granted), "{what}");
            }
        }
    }
}

/// A part of what was granted comes back while it counts, as if it had not been taken, and not later.
pub async fn undoes_a_part_where_it_still_counts(store: &impl Store, clock: &ManualClock) {
    const MINUTE: Micros = 60 * SECOND;
    const DAY: Micros = 24 * 60 * MINUTE;
    for (i, plan) in plans().iter().enumerate() {
        let algorithm = &plan.limits()[0].algorithm;
        match algorithm {
            // They have no windows.
            Algorithm::Concurrency(_)
            | Algorithm::TokenBucket(_)
            | Algorithm::Gcra(_)
            | Algorithm::SlidingLog(_) => continue,
            _ => {}
        }
        // Its hits count longer than its window, and weigh as much at its end.
        let is_sliding = matches!(algorithm, Algorithm::SlidingWindow(_));
        let late = if is_sliding { 60 * MINUTE } else { 59 * MINUTE };
        for (wait, counts) in [(0, true), (late, true), (3 * DAY, false)] {
            clock.set(clock.now().next_multiple_of(DAY));
            let value = format!("undo {i} {wait}");
            let taken = clock.now();
            let granted = one(store, &value, plan, up_to(1, 2 * N, 1), "").await.granted;
            assert_eq!(granted, N);
            clock.advance(wait);
            if !counts {
                assert!(one(store, &value, plan, Op::Take(N.into()), "").await.allowed);
            }
            let undo = Op::Undo(Undo { hits: 4, taken, limits: u16::MAX });
            let undone = one(store, &value, plan, undo, "").await;
            let left = if counts { 4 } else { 0 };
            assert_eq!((undone.allowed, undone.remaining), (true, left), "{}", plan.shape());
            let again = one(store, &value, plan, up_to(0, 2 * N, 1), "").await;
            assert_eq!(u64::from(again.granted), left, "{wait} {}", plan.shape());
        }
    }
}

/// However many requests are denied for another descriptor, all of what they share is left for others.
pub async fn starves_nobody_by_denied_batches(store: &impl Store, clock: &ManualClock) {
    let none = &plan(0, Unit::Second);
    for (i, plan) in plans().iter().enumerate() {
        for round in 0..4 {
            let values = [format!("shared {i} {round}"), format!("denying {i} {round}")];
            let entries = values.each_ref().map(|value| [("key", value.as_str())]);
            let [key, other] =
                entries.each_ref().map(|entries| Key { domain: "operations", entries });
            for _ in 0..5 {
                let denied = ["a", "b", "c", "d"].map(|hold| async move {
                    let (op, role) = (Op::Take(2), Role::Enforced);
                    let hold = plan.hold_id().map(|_| hold);
                    let one = Charge { key, plan, op, hold, role };
                    let denying = Charge { key: other, plan: none, op, hold: None, role };
                    charge(store, &[one, denying], true).await
                });
                for decisions in join_all(denied).await {
                    assert!(!decisions[1].allowed);
                }
                clock.advance(SECOND);
            }
            let look = one_of(store, &values[0], plan, (Op::Take(0), "look"), true).await;
            assert_eq!(look.remaining, u64::from(N), "{}", plan.shape());
            let all = one_of(store, &values[0], plan, (Op::Take(N.into()), "all"), true).await;
            assert!(all.allowed, "{}", plan.shape());
        }
    }
}

/// Hits that are added count beyond n, and deny later ones. A log has only what was admitted.
pub async fn adds_whatever_the_limits_say(store: &impl Store) {
    for (i, plan) in plans().iter().enumerate() {
        let value = format!("add {i}");
        assert!(one(store, &value, plan, Op::Take(1), "a").await.allowed);
        let add = Op::Add { hits: N, limits: u16::MAX };
        let added = one(store, &value, plan, add, "b").await;
        assert!(added.allowed && added.retry_after.is_none(), "{}", plan.shape());
        let is_log = matches!(plan.limits()[0].algorithm, Algorithm::SlidingLog(_));
        let expected = if is_log { u64::from(N) - 1 } else { 0 };
        assert_eq!((added.used_before, added.remaining), (1, expected), "{}", plan.shape());
        assert_eq!(one(store, &value, plan, Op::Take(1), "c").await.allowed, is_log);
        // Not to a limit whose bit is not set.
        let value = format!("none {i}");
        let add = Op::Add { hits: N, limits: !1 };
        let added = one(store, &value, plan, add, "b").await;
        assert_eq!((added.limit, added.remaining), (0, N.into()), "{}", plan.shape());
    }
}

/// Limits of 0, limits that charge denied hits and strict buckets: taking up to some hits and adding are
/// what the arithmetic of plans says.
pub async fn takes_and_adds_as_plans_do(store: &impl Store, clock: &ManualClock) {
    const MINUTE: Micros = 60 * SECOND;
    let add = |hits| Op::Add { hits, limits: u16::MAX };
    let steps = [
        (up_to(0, 4, 2), 0),
        (up_to(2, 2 * N, 2), 7),
        (add(1), 0),
        // Denied, which a strict bucket waits for.
        (up_to(N, 2 * N, 1), 59 * MINUTE),
        // Granted nothing, or little, which it does not.
        (up_to(0, 2 * N, 1), MINUTE - 7),
        (add(2), 7),
        (up_to(1, 2, 1), 30 * MINUTE),
        (add(N), 0),
        (up_to(1, 2, 1), 0),
        (up_to(0, 2, 1), 200 * MINUTE),
        (up_to(1, 2 * N, 3), 0),
        (Op::Take(0), 0),
    ];
    for (i, plan) in special_plans().iter().enumerate() {
        clock.set(clock.now().next_multiple_of(24 * 60 * MINUTE));
        let (value, what) = (format!("special {i}"), plan.shape());
        let mut state = State::default();
        for (at, (op, pass)) in steps.into_iter().enumerate() {
            let id = at.to_string();
            let hold = plan.hold_id().map(|_| id.as_str());
            let expected = plan.charge(&mut state, clock.now(), op, hold).decision;
            let actual = one(store, &value, plan, op, &id).await;
            assert_eq!(actual, expected, "{at}: {op:?} of {i}, {what}");
            if plan.limits()[0].requests_per_unit == 0
                && let Op::UpTo(up_to) = op
            {
                assert_eq!((actual.allowed, actual.granted), (up_to.least == 0, 0), "{i}, {what}");
            }
            assert!(actual.allowed || !matches!(op, Op::Add { .. }), "{i}, {what}");
            clock.advance(pass);
        }
    }
}

/// Limits of 0 and others that charge denied hits or not, alone and beside another.
fn special_plans() -> Vec<Arc<Plan>> {
    let interval = Unit::Hour.period(1).unwrap();
    let day = Limit { charge_denied: false, ..Limit::fixed_window(100, Unit::Day, 1).unwrap() };
    let mut plans = Vec::new();
    for (n, charge_denied, strict) in
        [(0, false, false), (0, true, false), (N, true, false), (N, false, true), (N, true, true)]
    {
        let (capacity, max_debt) = (N, N);
        let bucket = TokenBucket { capacity, amount: 2, interval, strict, max_debt };
        for algorithm in hourly(n, bucket, Gcra::new(n, interval, N, N).unwrap()) {
            let is_bucket = matches!(algorithm, Algorithm::TokenBucket(_));
            let is_log = matches!(algorithm, Algorithm::SlidingLog(_));
            if is_log && charge_denied || strict && !is_bucket {
                continue;
            }
            let limit = Limit::fixed_window(n, Unit::Hour, 1).unwrap();
            let limit = Limit { algorithm, charge_denied, ..limit };
            plans.push(vec![limit.clone()]);
            plans.push(vec![limit, day.clone()]);
        }
    }
    plans.into_iter().map(Plan::new).map(Arc::new).collect()
}

/// Hits are added also where their batch is denied as a whole; what would be taken up to is not.
pub async fn adds_even_if_the_batch_is_denied(store: &impl Store) {
    let (wide, none) = (plan(10, Unit::Hour), plan(0, Unit::Hour));
    let entries = ["added", "taken", "none"].map(|value| [("key", value)]);
    let charge_of = |i: usize, plan, op| Charge {
        key: Key { domain: "operations", entries: &entries[i] },
        plan,
        op,
        hold: None,
        role: Role::Enforced,
    };
    let add = Op::Add { hits: 3, limits: u16::MAX };
    let charges = [
        charge_of(0, &wide, add),
        charge_of(1, &wide, up_to(1, 4, 1)),
        charge_of(2, &none, Op::Take(1)),
    ];
    let decisions = charge(store, &charges, true).await;
    let answers: Vec<_> = decisions.iter().map(|it| (it.allowed, it.granted)).collect();
    assert_eq!(answers, [(true, 0), (true, 4), (false, 0)]);
    let used = async |value| one_of(store, value, &wide, (Op::Take(0), ""), true).await.used_before;
    assert_eq!([used("added").await, used("taken").await], [3, 0]);
}

/// Of concurrent reservations exactly n hits are granted; what they return is no longer counted, and
/// nothing else.
pub fn grants_exactly_n_of_racing<S: Store, F: Future<Output = S>>(
    stores: &(impl Fn() -> F + Sync),
) {
    const THREADS: u64 = 8;
    let limit = |unit| Limit { charge_denied: false, ..Limit::fixed_window(999, unit, 1).unwrap() };
    let lone = Arc::new(Plan::new(vec![limit(Unit::Year)]));
    let two = Arc::new(Plan::new(vec![limit(Unit::Year), limit(Unit::Month)]));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, plan) in [("lone", &lone), ("two", &two)] {
        let used = || {
            runtime().block_on(async {
                one(&stores().await, name, plan, Op::Take(0), "").await.used_before
            })
        };
        let reserve = |returns_hits| async move {
            let store = stores().await;
            let mut kept = 0;
            loop {
                let decision = one(&store, name, plan, up_to(1, 7, 1), "").await;
                if !decision.allowed {
                    return kept;
                }
                let back = if returns_hits { decision.granted / 2 } else { 0 };
                if back > 0 {
                    let taken = weir_common::clock::SystemClock::new().now();
                    let undo = Undo { hits: back, taken, limits: u16::MAX };
                    one(&store, name, plan, Op::Undo(undo), "").await;
                }
                kept += u64::from(decision.granted - back);
            }
        };
        let race = |returns_hits| -> u64 {
            let reserve = &reserve;
            thread::scope(|scope| {
                let start = || scope.spawn(move || runtime().block_on(reserve(returns_hits)));
                let threads: Vec<_> = (0..THREADS).map(|_| start()).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            })
        };
        assert_eq!((race(true), used()), (999, 999), "{name}");
        let all = Op::Refund(999);
        runtime().block_on(async { one(&stores().await, name, plan, all, "").await });
        assert_eq!((race(false), used()), (999, 999), "{name}");
    }
}
