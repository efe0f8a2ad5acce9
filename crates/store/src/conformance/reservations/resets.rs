//! Resets of keys of which hits are reserved.

use std::sync::Arc;

use super::charges::{cancel, charge_of, of, reserve, settle, settle_or_reserve, used};
use crate::charge::Key;
use crate::conformance::charges::{TIMEOUT, charge};
use crate::states::{StateKey, States};
use weir_common::clock::ManualClock;
use weir_limit::{
    Algorithm, BucketedWindow, Calendar, FixedWindow, Limit, Op, Plan, ReservationResult, SECOND,
    SlidingWindow, Unit,
};

const DAY: u64 = 86_400 * SECOND;

/// Plans of each algorithm that can reserve, alone and with another, whose windows do not end within the test.
fn plans() -> Vec<Arc<Plan>> {
    let fixed = Limit::fixed_window(100, Unit::Year, 1).expect("a period");
    let not_denied = Limit { charge_denied: false, ..fixed.clone() };
    let calendar = Calendar::new(Unit::Year, "UTC").map(Arc::new).ok();
    let plan_with = |algorithm| of(100, algorithm);
    let period = 365 * DAY;
    let limits = [
        plan_with(Algorithm::SlidingWindow(SlidingWindow { n: 100, period })),
        plan_with(Algorithm::BucketedWindow(BucketedWindow { n: 100, period, buckets: 12 })),
        plan_with(Algorithm::FixedWindow(FixedWindow { n: 100, period, calendar })),
        not_denied.clone(),
        fixed,
    ];
    let both = limits.iter().map(|limit| vec![limit.clone(), not_denied.clone()]);
    let lone = limits.iter().map(|limit| vec![limit.clone()]);
    lone.chain(both).map(|limits| Arc::new(Plan::new(limits))).collect()
}

/// What was reserved before a reset is settled and returns nothing, in whatever way; what is reserved after it
/// returns what is not used.
pub async fn returns_nothing_of_before_a_reset(store: &impl States, clock: &ManualClock) {
    use ReservationResult::Settled;
    let plans = plans();
    let cases = plans.iter().flat_map(|plan| [(plan, false), (plan, true)]);
    for (i, (plan, together)) in cases.enumerate() {
        let value = format!("resets {i}");
        let entries = [("key", value.as_str())];
        let key = Key { domain: "reservations", entries: &entries };
        let key = StateKey { key, plan, together, id: None };
        let make = async |op, id| {
            charge(store, &[charge_of(&entries, plan, op, id)], together).await.swap_remove(0)
        };
        let counts = async |expected: u64| {
            let used = used(store, key).await;
            assert!(used.iter().all(|used| *used == expected), "{}: {used:?}", plan.shape());
        };
        for id in ["settled", "cancelled", "marked", "more", "grouped", "added", "left"] {
            assert!(make(reserve(1, 9), id).await.allowed);
        }
        assert!(make(reserve(1, 9), "added twice").await.allowed);
        assert!(make(reserve(1, 9), "added twice").await.allowed);
        counts(81).await;
        clock.advance(SECOND);
        assert_eq!(store.reset(key, TIMEOUT).await, Ok(()));
        clock.advance(SECOND);
        counts(0).await;

        assert!(make(Op::Take(70), "").await.allowed);
        let settled = make(settle(2), "settled").await;
        assert_eq!((settled.reservation, settled.reserved), (Settled, 9));
        assert_eq!(make(cancel(u32::MAX), "cancelled").await.reservation, Settled);
        assert_eq!(make(settle_or_reserve(0, 9), "marked").await.reservation, Settled);
        for _ in 0..2 {
            assert_eq!(make(settle(1), "added twice").await.reserved, 9);
        }
        let grouped = [
            charge_of(&entries, plan, settle(0), "grouped"),
            charge_of(&entries, plan, Op::Take(1), ""),
        ];
        charge(store, &grouped, together).await;
        counts(71).await;
        // What was used beyond is charged.
        assert_eq!(make(settle(12), "more").await.reserved, 9);
        counts(74).await;
        // Reserved again, only that is returned.
        for (id, hits) in [("added", 5), ("new", 6), ("grouped", 7)] {
            assert_eq!(make(reserve(1, hits), id).await.granted, hits);
            clock.advance(SECOND);
        }
        counts(92).await;
        for (id, hits) in [("added", 5), ("new", 6), ("grouped", 7)] {
            let settled = make(settle(1), id).await;
            assert_eq!((settled.reservation, settled.reserved), (Settled, hits), "{id}");
        }
        counts(77).await;
        // A reset after that is one, too.
        assert!(make(reserve(1, 9), "between").await.allowed);
        clock.advance(SECOND);
        assert_eq!(store.reset(key, TIMEOUT).await, Ok(()));
        assert!(make(Op::Take(50), "").await.allowed);
        for id in ["left", "between"] {
            assert_eq!(make(settle(0), id).await.reserved, 9);
        }
        counts(50).await;
    }
}
