//! Reservations: hits that are reserved under an id, and settled.

mod charges;
mod ledger;
mod racing;
mod random;
mod resets;

use std::sync::Arc;

use self::charges::{
    cancel, charge_of, counted, counted_together, days, make, make_together, of, reserve, settle,
    settle_or_reserve, used,
};
pub use self::racing::reserves_at_most_n_of_racing;
use super::charges::{TIMEOUT, charge, plan};
use crate::charge::Key;
use crate::states::{StateKey, States};
use crate::store::Store;
use weir_common::clock::{Clock, ManualClock};
use weir_common::entry::Entry;
use weir_limit::{Algorithm, FixedWindow, Limit, Op, Plan, ReservationResult, SECOND, Unit};

/// The steps of a random schedule for each plan.
const STEPS: usize = 120;

/// The steps of a random schedule that reads a state after each, which may take a connection.
const READ_STEPS: usize = 50;

/// The steps of each of two long schedules, which together make some 100,000 operations.
const LONG_STEPS: usize = 2_000;

/// Runs all of the suite about reservations that needs no reading of states, with a clock that is never
/// stepped back.
pub async fn conforms(store: &impl Store, clock: &ManualClock) {
    keeps_what_each_id_of_each_key_has_reserved(store).await;
    makes_operations_of_a_batch_in_order(store).await;
    settles_at_a_limit_of_zero(store).await;
    never_charges_a_denial(store).await;
    forgets_what_has_lapsed(store, clock).await;
    reserves_nothing_in_a_denied_batch(store).await;
    settles_in_a_denied_batch(store).await;
    random::agrees(store, clock, ("reserve", STEPS), false, async |_| None).await;
}

/// Runs all of the suite about reservations, and the states that they leave.
pub async fn states_conform(store: &impl States, clock: &ManualClock) {
    keeps_reservations_of_a_reset_key(store).await;
    resets::returns_nothing_of_before_a_reset(store, clock).await;
    let used = async |key: StateKey<'_>| Some(used(store, key).await);
    random::agrees(store, clock, ("reserve-read", READ_STEPS), true, used).await;
}

/// Runs the random schedules at length. The store needs room for 10,000 keys.
pub async fn conforms_at_length(store: &impl States, clock: &ManualClock) {
    random::agrees(store, clock, ("long", LONG_STEPS), false, async |_| None).await;
    let used = async |key: StateKey<'_>| Some(used(store, key).await);
    random::agrees(store, clock, ("long-read", LONG_STEPS), true, used).await;
}

/// Each id of each key and plan has its own reservation, whatever the bytes of its name.
pub async fn keeps_what_each_id_of_each_key_has_reserved(store: &impl Store) {
    let long = "x".repeat(300);
    let ids = ["a", "b", "a_b", "b_a", "\0", "{1}", "a:b", "ä", " ", &long];
    let keys: [&[Entry<'_>]; 5] = [
        &[("key", "a")],
        &[("key", "a_b")],
        &[("key", "")],
        &[("key", "a"), ("key", "b")],
        &[("key", "{1}")],
    ];
    let plans = [plan_of(Unit::Hour), plan_of(Unit::Day)];
    let each = || {
        let of_plan = |plan| {
            let of_key = move |entries| ids.into_iter().map(move |id| (plan, entries, id));
            keys.into_iter().flat_map(of_key)
        };
        (1_u32..).zip(plans.iter().flat_map(of_plan))
    };
    for (hits, (plan, entries, id)) in each() {
        let one = charge_of(entries, plan, reserve(1, hits), id);
        let decision = charge(store, &[one], false).await.swap_remove(0);
        assert_eq!((decision.allowed, decision.granted), (true, hits), "{id:?} of {entries:?}");
        assert_eq!(decision.reservation, ReservationResult::Reserved);
    }
    for expected in [ReservationResult::Settled, ReservationResult::Unknown] {
        for (hits, (plan, entries, id)) in each() {
            let one = charge_of(entries, plan, settle(0), id);
            let decision = charge(store, &[one], false).await.swap_remove(0);
            let hits = if expected == ReservationResult::Settled { hits } else { 0 };
            assert_eq!(
                (decision.reservation, decision.reserved),
                (expected, hits),
                "{id:?} of {entries:?}"
            );
        }
    }
    for (_, (plan, entries, _)) in each() {
        let look = charge_of(entries, plan, Op::Take(0), "");
        assert_eq!(charge(store, &[look], false).await[0].used_before, 0);
    }
}

fn plan_of(unit: Unit) -> Arc<Plan> {
    let limit = Limit::fixed_window(1_000_000, unit, 1).unwrap();
    Arc::new(Plan::new(vec![Limit { charge_denied: false, ..limit }]))
}

/// Operations of one key in one batch are made one after the other.
pub async fn makes_operations_of_a_batch_in_order(store: &impl Store) {
    for (i, plan) in days(20).iter().enumerate() {
        let value = format!("order {i}");
        let entries = [("key", value.as_str())];
        let (taken, kept) = (ReservationResult::None, ReservationResult::Reserved);
        let (settled, unknown) = (ReservationResult::Settled, ReservationResult::Unknown);
        let steps = [
            (Op::Take(1), "", taken, 19),
            (reserve(1, 8), "a", kept, 11),
            (Op::Take(2), "", taken, 9),
            (reserve(1, 30), "b", kept, 0),
            (settle(3), "a", settled, 5),
            (settle(1), "a", unknown, 4),
            (cancel(9), "b", settled, 13),
            (settle_or_reserve(0, 10), "b", kept, 3),
            (reserve(2, 3), "b", kept, 0),
            // One half of what both have reserved.
            (settle_or_reserve(0, 10), "b", settled, 6),
            (settle_or_reserve(9, 10), "b", settled, 4),
            (settle_or_reserve(4, 10), "b", kept, 0),
        ];
        let charges = steps.map(|(op, id, ..)| charge_of(&entries, plan, op, id));
        let decisions = charge(store, &charges, false).await;
        for ((op, id, result, left), decision) in steps.iter().zip(decisions) {
            let actual = (decision.allowed, decision.reservation, decision.remaining);
            assert_eq!(actual, (true, *result, *left), "{op:?} of {id}");
        }
    }
}

/// Where nothing is allowed, nothing is reserved; what was reserved before is settled and cancelled.
pub async fn settles_at_a_limit_of_zero(store: &impl Store) {
    for (i, (some, none)) in days(10).iter().zip(&days(0)).enumerate() {
        let value = format!("zero {i}");
        for (id, hits) in [("less", 2), ("more", 2), ("cancelled", 3)] {
            assert_eq!(make(store, &value, some, reserve(1, hits), id).await.granted, hits);
        }
        for op in [reserve(1, 5), settle_or_reserve(0, 5)] {
            let denied = make(store, &value, none, op, "new").await;
            let actual = (denied.allowed, denied.granted, denied.reservation);
            assert_eq!(actual, (false, 0, ReservationResult::None));
        }
        for (op, id, reserved, used) in [
            (settle(1), "less", 2, 6),
            (settle(6), "more", 2, 10),
            (cancel(3), "cancelled", 3, 7),
            (settle(5), "new", 0, 12),
        ] {
            let settled = make(store, &value, none, op, id).await;
            assert_eq!((settled.allowed, settled.reserved), (true, reserved), "{id}");
            assert_eq!(counted(store, &value, some).await, used, "{id}");
        }
    }
}

/// A denied reservation charges nothing, also to limits that charge denied hits: what is returned is left.
pub async fn never_charges_a_denial(store: &impl Store) {
    for (i, plan) in days(8_000).iter().enumerate() {
        let charged = |limit: &Limit| Limit { charge_denied: true, ..limit.clone() };
        let plan = Arc::new(Plan::new(plan.limits().iter().map(charged).collect()));
        let value = format!("denial {i}");
        for id in ["a", "b"] {
            assert_eq!(make(store, &value, &plan, reserve(1, 4_000), id).await.granted, 4_000);
        }
        for _ in 0..25 {
            for op in [reserve(1, 1), reserve(7, 9), settle_or_reserve(0, 3)] {
                assert!(!make(store, &value, &plan, op, "denied").await.allowed, "{op:?}");
            }
        }
        let cancelled = make(store, &value, &plan, cancel(u32::MAX), "a").await;
        assert_eq!(cancelled.remaining, 4_000, "{}", plan.shape());
    }
}

/// What an id has reserved can be settled until its timeout, to the microsecond, and then stays charged.
pub async fn forgets_what_has_lapsed(store: &impl Store, clock: &ManualClock) {
    for (i, plan) in days(20).iter().enumerate() {
        let value = format!("lapsed {i}");
        clock.set(clock.now().next_multiple_of(86_400 * SECOND) + 1);
        for id in ["a", "b"] {
            assert!(make(store, &value, plan, reserve(1, 5), id).await.allowed);
        }
        // In whole seconds.
        clock.advance(3_601 * SECOND - 2);
        let last = make(store, &value, plan, settle(0), "a").await;
        assert_eq!((last.reservation, last.reserved), (ReservationResult::Settled, 5));
        clock.advance(1);
        let late = make(store, &value, plan, cancel(5), "b").await;
        assert_eq!((late.reservation, late.reserved), (ReservationResult::Unknown, 0));
        assert_eq!(counted(store, &value, plan).await, 5);
    }
}

/// Of a batch that is denied as a whole, nothing is charged and nothing reserved, and what was reserved
/// before stays as it was.
pub async fn reserves_nothing_in_a_denied_batch(store: &impl Store) {
    let none = plan(0, Unit::Second);
    for (i, plan) in days(20).iter().enumerate() {
        let values = [format!("denied {i}"), format!("denying {i}")];
        let entries = values.each_ref().map(|value| [("key", value.as_str())]);
        assert!(make_together(store, &values[0], plan, reserve(1, 6), "old").await.allowed);
        for id in ["old", "new"] {
            for op in [reserve(1, 5), settle_or_reserve(0, 5)] {
                if op.returns_hits() && id == "old" {
                    continue;
                }
                let denying = charge_of(&entries[1], &none, Op::Take(1), "");
                for second in [denying, charge_of(&entries[1], &none, op, id)] {
                    let first = charge_of(&entries[0], plan, op, id);
                    for batch in [[first, second], [second, first]] {
                        let decisions = charge(store, &batch, true).await;
                        assert!(decisions.iter().any(|decision| !decision.allowed));
                        assert_eq!(
                            counted_together(store, &values[0], plan).await,
                            6,
                            "{op:?} of {id}"
                        );
                    }
                }
            }
        }
        let unknown = make_together(store, &values[0], plan, cancel(5), "new").await;
        assert_eq!(unknown.reservation, ReservationResult::Unknown);
        let old = make_together(store, &values[0], plan, settle(2), "old").await;
        assert_eq!((old.reservation, old.reserved), (ReservationResult::Settled, 6));
        let again = make_together(store, &values[0], plan, settle(0), "old").await;
        assert_eq!(again.reservation, ReservationResult::Unknown);
        assert_eq!(counted_together(store, &values[0], plan).await, 2);

        // Where it is allowed, all of it is kept.
        let batch = [0, 1].map(|i| charge_of(&entries[i], plan, reserve(1, 4), "both"));
        assert!(charge(store, &batch, true).await.iter().all(|it| it.granted == 4));
        for value in &values {
            assert_eq!(make_together(store, value, plan, settle(0), "both").await.reserved, 4);
        }
    }
}

/// What is settled or cancelled in a batch that is denied as a whole is settled, exactly once.
pub async fn settles_in_a_denied_batch(store: &impl Store) {
    let none = plan(0, Unit::Second);
    for (i, plan) in days(50).iter().enumerate() {
        let values = [format!("settled {i}"), format!("unsettled {i}")];
        let entries = values.each_ref().map(|value| [("key", value.as_str())]);
        for (op, known, unknown) in [
            (settle(3), 3, 3),
            (settle(9), 9, 9),
            (cancel(6), 0, 0),
            // Where they would reserve, not made.
            (settle_or_reserve(2, 6), 2, 0),
            (settle_or_reserve(0, 6), 0, 0),
        ] {
            for has_reserved in [true, false] {
                if has_reserved {
                    assert_eq!(
                        make_together(store, &values[0], plan, reserve(1, 6), "id").await.granted,
                        6
                    );
                }
                let before = counted_together(store, &values[0], plan).await;
                let settling = charge_of(&entries[0], plan, op, "id");
                let denied = charge_of(&entries[1], &none, Op::Take(1), "");
                let decisions = charge(store, &[settling, denied], true).await;
                assert_eq!(decisions[0].reserved, if has_reserved { 6 } else { 0 }, "{op:?}");
                let after = counted_together(store, &values[0], plan).await;
                let expected = if has_reserved { before - 6 + known } else { before + unknown };
                assert_eq!(after, expected, "{op:?}");
                let again = make_together(store, &values[0], plan, cancel(1), "id").await;
                assert_eq!(again.reservation, ReservationResult::Unknown, "{op:?}");
            }
        }
    }
}

/// A reset deletes the counts of a key, and not what its ids have reserved.
pub async fn keeps_reservations_of_a_reset_key(store: &impl States) {
    for (i, plan) in days(20).iter().enumerate() {
        let value = format!("reset {i}");
        let entries = [("key", value.as_str())];
        let key = Key { domain: "reservations", entries: &entries };
        let key = StateKey { key, plan, together: false, id: None };
        assert!(make(store, &value, plan, reserve(1, 8), "id").await.allowed);
        assert_eq!(store.reset(key, TIMEOUT).await, Ok(()));
        assert!(used(store, key).await.iter().all(|used| *used == 0));
        for (id, hits) in [("id", Some(8)), ("none", None)] {
            let read = store.read(StateKey { id: Some(id), ..key }, &[], TIMEOUT).await;
            let (now, reservation) =
                read.map(|state| (state.now, state.reservation)).expect("a state");
            assert_eq!(reservation.map(|reservation| reservation.hits), hits);
            let lapses = now + 1..=now + 3_601 * SECOND;
            assert!(reservation.is_none_or(|it| it.taken <= now && lapses.contains(&it.lapses)));
        }
        assert_eq!(make(store, &value, plan, reserve(1, 30), "other").await.granted, 20);
        let settled = make(store, &value, plan, settle(9), "id").await;
        assert_eq!((settled.reservation, settled.reserved), (ReservationResult::Settled, 8));
        assert!(used(store, key).await.iter().all(|used| *used == 21));
    }
}

/// However many reservations of a key are open, all can be settled, and other keys keep their counts. For a
/// store with room for 2 000 keys and 11 000 reservations.
pub async fn keeps_many_open(store: &impl Store, clock: &ManualClock) {
    const OPEN: usize = 10_000;
    const OTHERS: usize = 1_000;
    const BATCH: usize = 100;
    let algorithm = FixedWindow { n: 20_000, period: 86_400 * SECOND, calendar: None };
    let plan = Arc::new(Plan::new(vec![of(20_000, Algorithm::FixedWindow(algorithm))]));
    let names = |count: usize| (0..count).map(|i| i.to_string()).collect::<Vec<_>>();
    let (ids, others) = (names(OPEN), names(OTHERS));
    let others: Vec<[Entry<'_>; 1]> =
        others.iter().map(|other| [("other", other.as_str())]).collect();
    let of_others = async |op| {
        let mut decisions = Vec::new();
        for others in others.chunks(BATCH) {
            let charges: Vec<_> =
                others.iter().map(|entries| charge_of(entries, &plan, op, "")).collect();
            decisions.extend(charge(store, &charges, false).await);
        }
        decisions
    };
    let of_ids = async |op: &dyn Fn(usize) -> Op| {
        let entries = [("key", "many")];
        let mut decisions = Vec::new();
        for (batch, ids) in ids.chunks(BATCH).enumerate() {
            let each = ids.iter().enumerate();
            let charges: Vec<_> =
                each.map(|(i, id)| charge_of(&entries, &plan, op(batch * BATCH + i), id)).collect();
            decisions.extend(charge(store, &charges, false).await);
        }
        decisions
    };
    of_others(Op::Take(3)).await;
    let reserved = of_ids(&|_| reserve(1, 2)).await;
    assert!(reserved.iter().all(|decision| decision.granted == 2));
    assert_eq!(counted(store, "many", &plan).await, 20_000);
    clock.advance(SECOND);
    let settled = of_ids(&|i| settle(i as u32 % 4)).await;
    assert!(settled.iter().all(|decision| decision.reserved == 2));
    // 0, 1, 2 and 3 in turn.
    assert_eq!(counted(store, "many", &plan).await, 15_000);
    let looks = of_others(Op::Take(0)).await;
    assert!(looks.iter().all(|decision| decision.used_before == 3));
}
