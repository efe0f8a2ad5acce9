//! What every store must do, as functions that the tests of a store call.
//!
//! All stores of this crate pass the suite. For a store outside it, enable the feature `testsuite`:
//!
//! ```toml
//! [dev-dependencies]
//! weir-store = { version = "…", features = ["testsuite"] }
//! ```
//!
//! Give the store a [`ManualClock`] that starts at [`DAWN`], and call the suite in two tests:
//!
//! ```ignore
//! use weir_store::conformance;
//!
//! #[tokio::test]
//! async fn conforms() {
//!     let clock = Arc::new(ManualClock::new(conformance::DAWN));
//!     let store = MyStore::new(clock.clone());
//!     conformance::conforms(&store, &clock).await;
//!     // If it implements `States`.
//!     conformance::states::conforms(&store, &clock).await;
//!     // With room for 2 000 keys and 11 000 reservations.
//!     conformance::reservations::keeps_many_open(&store, &clock).await;
//! }
//!
//! #[test]
//! fn admits_exactly_n_of_racing() {
//!     let store = Arc::new(MyStore::new(Arc::new(SystemClock::new())));
//!     conformance::admits_exactly_n_of_racing(&|| std::future::ready(store.clone()));
//!     conformance::operations::grants_exactly_n_of_racing(&|| std::future::ready(store.clone()));
//!     // If it implements `States`.
//!     conformance::reservations::reserves_at_most_n_of_racing(&|| std::future::ready(store.clone()));
//! }
//! ```
//!
//! `tests/testsuite.rs` is a complete example. The functions panic where the store does not conform.
//! Each uses keys of its own domains, so one store may run all of them, but each only once.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a suite fails by panics"
)]

pub mod bans;
mod charges;
pub mod fakes;
pub mod grants;
pub mod holds;
#[cfg(test)]
pub mod model;
pub mod operations;
pub mod records;
#[cfg(test)]
pub(crate) mod reduce;
pub mod replicas;
pub mod reservations;
pub mod states;
pub mod table;

use std::future::Future;
use std::sync::Arc;
use std::thread;

pub use self::charges::{DAWN, charge, plan, take, try_read, try_reset};
use self::charges::{TIMEOUT, hourly};
use crate::charge::{Answers, Batch, Charge, Key, Role};
use crate::error::StoreError;
#[cfg(test)]
use crate::states::States;
use crate::store::Store;
use weir_common::clock::{Clock, ManualClock};
use weir_common::entry::Entry;
use weir_limit::{
    Algorithm, Gcra, Limit, MAX_WAIT, MAX_WAIT_YEARS, Op, Plan, SECOND, State, TokenBucket, Unit,
};

/// Runs all of the suite that one thread can: everything but [`admits_exactly_n_of_racing`] and the like of
/// [`operations`] and [`reservations`].
pub async fn conforms(store: &impl Store, clock: &ManualClock) {
    admits_n_in_each_window(store, clock).await;
    counts_each_key_separately(store).await;
    looks_and_refunds(store).await;
    charges_all_or_none(store).await;
    adds_its_answers(store).await;
    a_limit_of_zero_denies(store).await;
    holds::replaces_a_hold_of_the_same_id(store, clock).await;
    keeps_the_longest_debts(store, clock).await;
    operations::conforms(store, clock).await;
    replicas::conforms(store, clock).await;
    reservations::conforms(store, clock).await;
    bans::conforms(store, clock).await;
}

/// Admits n in a window, no more, and n again in the next.
pub async fn admits_n_in_each_window(store: &impl Store, clock: &ManualClock) {
    let plan = plan(3, Unit::Minute);
    for _window in 0..3 {
        for used in 0..3 {
            let decision = take(store, "windows", "a", &plan, 1).await;
            assert!(decision.allowed);
            assert_eq!((decision.used_before, decision.remaining), (used, 2 - used));
        }
        clock.advance(59 * SECOND);
        let decision = take(store, "windows", "a", &plan, 1).await;
        assert!(!decision.allowed);
        assert_eq!(decision.retry_after, Some(SECOND));
        assert!(take(store, "windows", "b", &plan, 1).await.allowed);
        clock.advance(SECOND);
    }
}

/// Similar keys are counted separately; so are plans of different shapes, but not of different n.
pub async fn counts_each_key_separately(store: &impl Store) {
    let (hour, day) = (plan(1, Unit::Hour), plan(1, Unit::Day));
    let keys: [(&str, &[Entry<'_>]); 12] = [
        ("apart", &[("a_b", "c")]),
        ("apart", &[("a", "b_c")]),
        ("apart", &[("a", "")]),
        ("apart", &[("", "a")]),
        ("apart", &[("", "")]),
        ("apart", &[("", ""), ("", "")]),
        ("apart", &[("a", "\0")]),
        ("apart", &[("a", "{1}")]),
        ("apart", &[("a", "1"), ("b", "2")]),
        ("apart", &[("b", "2"), ("a", "1")]),
        ("apart", &[("a", "1_b_2")]),
        ("apart_a", &[("b", "c")]),
    ];
    for allowed in [true, false] {
        for plan in [&hour, &day] {
            for (domain, entries) in keys {
                let key = Key { domain, entries };
                let one = Charge { key, plan, op: Op::Take(1), hold: None, role: Role::Enforced };
                let decision = charge(store, &[one], false).await.swap_remove(0);
                assert_eq!(decision.allowed, allowed, "{key:?}");
            }
        }
    }
    let (two, more) = (plan(2, Unit::Hour), plan(3, Unit::Hour));
    assert!(take(store, "apart", "n", &two, 2).await.allowed);
    assert!(take(store, "apart", "n", &more, 1).await.allowed);
    assert!(!take(store, "apart", "n", &two, 1).await.allowed);
}

/// Looking does not charge; refunding never leaves more than n.
pub async fn looks_and_refunds(store: &impl Store) {
    let plan = plan(2, Unit::Hour);
    let key = Key { domain: "back", entries: &[("key", "a")] };
    let back = Charge { key, plan: &plan, op: Op::Refund(5), hold: None, role: Role::Enforced };
    for _ in 0..2 {
        assert!(charge(store, &[back], false).await[0].allowed);
        assert!(take(store, "back", "a", &plan, 0).await.allowed);
        assert!(take(store, "back", "a", &plan, 2).await.allowed);
        assert!(take(store, "back", "a", &plan, 0).await.allowed, "exactly full is not over");
        assert!(!take(store, "back", "a", &plan, 1).await.allowed);
        assert!(!take(store, "back", "a", &plan, 0).await.allowed);
    }
}

/// Answers are added to those of others.
pub async fn adds_its_answers(store: &impl Store) {
    let plan = plan(100, Unit::Hour);
    let entries = [("key", "a")];
    let key = Key { domain: "now", entries: &entries };
    let one = Charge { key, plan: &plan, op: Op::Take(1), hold: None, role: Role::Enforced };
    for (charges, together) in [(1, false), (3, false), (3, true)] {
        let before = take(store, "now", "a", &plan, 0).await.used_before;
        let mut answers = Answers::from_elem(Err(StoreError::Corrupt), 1);
        let ones = [one; 3];
        let batch = Batch { together, ..Batch::new(&ones[..charges], TIMEOUT) };
        store.charge(&batch, &mut answers).await;
        assert_eq!(answers.len(), 1 + charges);
        assert_eq!(answers[0], Err(StoreError::Corrupt), "earlier answers stay");
        let after = take(store, "now", "a", &plan, 0).await.used_before;
        assert_eq!(after - before, charges as u64);
    }
}

/// A limit of 0 denies hits and looks. Only a fixed window that charges denied hits answers looks as
/// the reference does: OK until a hit was counted. What was counted before stays counted.
pub async fn a_limit_of_zero_denies(store: &impl Store) {
    let interval = Unit::Hour.period(1).unwrap();
    let algorithms = |n: u32| {
        let (strict, max_debt) = (false, 2);
        let bucket = TokenBucket { capacity: 2, amount: n.max(1), interval, strict, max_debt };
        hourly(n, bucket, Gcra::new(n, interval, n, n).unwrap())
    };
    let cases = [false, true].into_iter().flat_map(|charge_denied| {
        let ways = [(false, false), (true, false), (false, true)];
        ways.map(|(beside, together)| (charge_denied, beside, together))
    });
    for (charge_denied, beside, together) in cases {
        let plans = |n: u32| {
            algorithms(n).map(|algorithm| {
                let hour = Limit::fixed_window(n, Unit::Hour, 1).unwrap();
                let other = Limit::fixed_window(1_000, Unit::Day, 1).unwrap();
                let mut limits = vec![Limit { algorithm, charge_denied, ..hour }];
                limits.extend(beside.then_some(Limit { charge_denied: false, ..other }));
                Arc::new(Plan::new(limits))
            })
        };
        for (zero, two) in plans(0).iter().zip(&plans(2)) {
            let algorithm = &zero.limits()[0].algorithm;
            if charge_denied && matches!(algorithm, Algorithm::SlidingLog(_)) {
                continue;
            }
            let what = format!("{} {charge_denied} {beside} {together}", zero.shape());
            let asked = std::cell::Cell::new(0);
            let ask = async |value: &str, plan: &Arc<Plan>, hits| {
                let key = Key { domain: "zero", entries: &[("case", &what), ("key", value)] };
                // Taking an id again would replace its hold.
                asked.set(asked.get() + 1);
                let id = asked.get().to_string();
                let (op, hold) = (Op::Take(hits), plan.hold_id().map(|_| id.as_str()));
                let one = Charge { key, plan, op, hold, role: Role::Enforced };
                charge(store, &[one], together).await.swap_remove(0)
            };
            let as_reference = charge_denied && matches!(algorithm, Algorithm::FixedWindow(_));
            assert_eq!(ask("new", zero, 0).await.allowed, as_reference, "{what}");
            for hits in [1, u64::from(u32::MAX)] {
                let decision = ask("new", zero, hits).await;
                let actual = (decision.allowed, decision.remaining, decision.retry_after);
                assert_eq!(actual, (false, 0, None), "{hits} of {what}");
            }
            // Together, what is denied is not charged.
            assert_eq!(ask("new", zero, 0).await.allowed, as_reference && together, "{what}");

            assert!(ask("used", two, 2).await.allowed, "{what}");
            assert!(!ask("used", zero, 0).await.allowed, "{what}");
            assert!(!ask("used", zero, 1).await.allowed, "{what}");
            assert!(!ask("used", two, 1).await.allowed, "{what}");
        }
    }
}

/// The longest possible debts are kept, and their waits are exact.
pub async fn keeps_the_longest_debts(store: &impl Store, clock: &ManualClock) {
    let year = Unit::Year.period(1).unwrap();
    let gcra = |n, debt| Algorithm::Gcra(Gcra::new(n, year, n, debt).unwrap());
    let bucket = TokenBucket {
        capacity: 1,
        amount: 1,
        interval: 100 * year,
        strict: false,
        max_debt: MAX_WAIT_YEARS as u32 / 100 - 1,
    };
    let most = MAX_WAIT_YEARS as u32;
    for (i, (n, algorithm)) in [
        (1, gcra(1, most - 1)),
        // In ticks of a microsecond, a millisecond and a second.
        (1, gcra(1, 100)),
        (7, gcra(7, 7 * (most - 1))),
        (10_007, gcra(10_007, 10_007 * (most - 1))),
        (1, Algorithm::TokenBucket(bucket)),
    ]
    .into_iter()
    .enumerate()
    {
        let lone = Limit::fixed_window(n, Unit::Year, 1).unwrap();
        let lone = Limit { algorithm, ..lone };
        let watch = Limit { shadow_mode: true, ..Limit::fixed_window(1, Unit::Year, 1).unwrap() };
        for limits in [vec![lone.clone()], vec![lone, watch]] {
            let plan = Arc::new(Plan::new(limits));
            let value = format!("{i} of {}", plan.limits().len());
            let mut state = State::default();
            for (hits, pass) in [(u64::from(u32::MAX), 1), (1, SECOND / 3), (0, year), (1, 0)] {
                let expected = plan.charge(&mut state, clock.now(), Op::Take(hits), None).decision;
                assert!(!expected.allowed);
                let decision = take(store, "debts", &value, &plan, hits).await;
                assert_eq!(decision, expected, "{value}: {hits}");
                clock.advance(pass);
            }
        }
    }

    // The debt that a bucket with a larger amount left is kept too; its wait is the longest there is.
    let bucket_of = |capacity, amount| {
        let (interval, strict, max_debt) = (100 * year, false, 0);
        let bucket = TokenBucket { capacity, amount, interval, strict, max_debt };
        let lone = Limit::fixed_window(amount, Unit::Year, 1).unwrap();
        Arc::new(Plan::new(vec![Limit { algorithm: Algorithm::TokenBucket(bucket), ..lone }]))
    };
    let (large, small) = (bucket_of(u32::MAX, u32::MAX), bucket_of(10, 1));
    assert!(take(store, "debts", "large", &large, u32::MAX.into()).await.allowed);
    for _ in 0..2 {
        let decision = take(store, "debts", "large", &small, 1).await;
        assert_eq!((decision.allowed, decision.retry_after), (false, Some(MAX_WAIT)));
    }
    let key = Key { domain: "debts", entries: &[("key", "large")] };
    let op = Op::Refund(u32::MAX.into());
    let back = Charge { key, plan: &small, op, hold: None, role: Role::Enforced };
    charge(store, &[back], false).await;
    assert!(take(store, "debts", "large", &small, 10).await.allowed);
}

/// A batch charged together is charged whole or not at all.
pub async fn charges_all_or_none(store: &impl Store) {
    let (wide, narrow) = (plan(10, Unit::Hour), plan(1, Unit::Hour));
    fn charge_of<'a>(
        entries: &'a [Entry<'a>],
        plan: &'a Arc<Plan>,
        op: Op,
        role: Role,
    ) -> Charge<'a> {
        Charge { key: Key { domain: "all", entries }, plan, op, hold: None, role }
    }
    let (a, b, c): (&[Entry<'_>], &[Entry<'_>], &[Entry<'_>]) =
        (&[("key", "a")], &[("key", "b")], &[("key", "c")]);
    let used = async |value, plan: &Arc<Plan>| {
        let entries = [("key", value)];
        let look = charge_of(&entries, plan, Op::Take(0), Role::Enforced);
        charge(store, &[look], true).await.swap_remove(0).used_before
    };

    let both = [
        charge_of(a, &wide, Op::Take(1), Role::Enforced),
        charge_of(b, &narrow, Op::Take(1), Role::Enforced),
    ];
    assert!(charge(store, &both, true).await.iter().all(|decision| decision.allowed));
    let decision = charge(store, &both, true).await;
    assert_eq!([decision[0].allowed, decision[1].allowed], [true, false]);
    assert_eq!([used("a", &wide).await, used("b", &narrow).await], [1, 1]);

    // Equal keys are decided one after the other, and undone as one.
    let thrice = [charge_of(c, &narrow, Op::Take(1), Role::Enforced); 3];
    let decision = charge(store, &thrice, true).await;
    assert_eq!(
        [decision[0].allowed, decision[1].allowed, decision[2].allowed],
        [true, false, false]
    );
    assert_eq!(used("c", &narrow).await, 0);

    // Shadow never denies the batch, nor does one quota of two; all quotas do.
    let shadow = [
        charge_of(a, &wide, Op::Take(1), Role::Enforced),
        charge_of(b, &narrow, Op::Take(1), Role::Shadow),
    ];
    charge(store, &shadow, true).await;
    assert_eq!(used("a", &wide).await, 2);
    let quotas = [
        charge_of(a, &wide, Op::Take(1), Role::Quota),
        charge_of(b, &narrow, Op::Take(1), Role::Quota),
    ];
    charge(store, &quotas, true).await;
    assert_eq!(used("a", &wide).await, 3);
    charge(store, &[quotas[1], shadow[0]], true).await;
    assert_eq!(used("a", &wide).await, 3);

    // What is refunded is refunded even if the batch is denied.
    let back = [
        charge_of(a, &wide, Op::Take(5), Role::Enforced),
        charge_of(a, &wide, Op::Refund(1), Role::Enforced),
        both[1],
    ];
    assert!(!charge(store, &back, true).await[2].allowed);
    assert_eq!(used("a", &wide).await, 2);
}

/// Of concurrent requests exactly n are admitted: of two keys separately, and of two together.
pub fn admits_exactly_n_of_racing<S: Store, F: Future<Output = S>>(
    stores: &(impl Fn() -> F + Sync),
) {
    const THREADS: u64 = 8;
    const EACH: u64 = 1_000;
    let (small, large) = (plan(1_234, Unit::Day), plan(1_000_000, Unit::Day));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

    let one = |values: [&str; 2], together| {
        let runtime = runtime();
        let store = runtime.block_on(stores());
        let entries = values.map(|value| [("key", value)]);
        let charge_of = |i: usize, plan| Charge {
            key: Key { domain: "race", entries: &entries[i] },
            plan,
            op: Op::Take(1),
            hold: None,
            role: Role::Enforced,
        };
        let (first, second) = (charge_of(0, &small), charge_of(1, &large));
        let mut admitted = [0; 2];
        for _ in 0..EACH / 2 {
            let decision = runtime.block_on(charge(&store, &[first, second], together));
            admitted[0] += u64::from(decision[0].allowed);
            admitted[1] += u64::from(decision[1].allowed);
            // In reverse order, so that locks taken in the order of the batch would deadlock.
            let decision = runtime.block_on(charge(&store, &[second, first], together));
            admitted[0] += u64::from(decision[1].allowed);
            admitted[1] += u64::from(decision[0].allowed);
        }
        admitted
    };
    let one = &one;
    let race = |values, together| {
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).map(|_| scope.spawn(move || one(values, together))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .fold([0; 2], |sum, admitted| [sum[0] + admitted[0], sum[1] + admitted[1]])
        })
    };
    let used = |value, together| {
        let key = Key { domain: "race", entries: &[("key", value)] };
        let (op, role) = (Op::Take(0), Role::Enforced);
        let look = Charge { key, plan: &large, op, hold: None, role };
        let looked = async { charge(&stores().await, &[look], together).await };
        runtime().block_on(looked).swap_remove(0).used_before
    };

    assert_eq!(race(["a", "b"], false), [1_234, THREADS * EACH]);
    assert_eq!(used("b", false), THREADS * EACH);
    // Together, the second is charged only as often as the first is admitted.
    assert_eq!(race(["c", "d"], true)[0], 1_234);
    assert_eq!(used("d", true), 1_234);
}
