//! Charges that reserve and settle, the limits that they are made to, and what these have counted.

use std::sync::Arc;

use crate::charge::{Charge, Key, Role};
use crate::conformance::charges::{TIMEOUT, charge, take};
use crate::states::{StateKey, States};
use crate::store::Store;
use weir_common::entry::Entry;
use weir_limit::{Algorithm, Decision, Limit, Op, Otherwise, Plan, ReservationOp, Reserve, Unit};

pub(super) fn of(n: u32, algorithm: Algorithm) -> Limit {
    let lone = Limit::fixed_window(n, Unit::Minute, 1).expect("a period");
    Limit { algorithm, charge_denied: false, ..lone }
}

/// Returns plans of one window of a day, and of one and another limit: states of both forms.
pub(super) fn days(n: u32) -> [Arc<Plan>; 2] {
    let day = Limit { charge_denied: false, ..Limit::fixed_window(n, Unit::Day, 1).unwrap() };
    let year = Limit { charge_denied: false, ..Limit::fixed_window(9_999, Unit::Year, 1).unwrap() };
    [vec![day.clone()], vec![day, year]].map(|limits| Arc::new(Plan::new(limits)))
}

pub(super) fn reserve(least: u32, most: u32) -> Op {
    let reserve = Reserve { least, most, timeout: 3_600 };
    Op::Reservation(ReservationOp::Reserve { reserve, once: None })
}

pub(super) fn settle_or_reserve(used: u32, most: u32) -> Op {
    let otherwise = Otherwise::Reserve(Reserve { least: 1, most, timeout: 3_600 });
    Op::Reservation(ReservationOp::Settle { used, otherwise })
}

pub(super) fn settle(used: u32) -> Op {
    Op::Reservation(ReservationOp::settle(used))
}

pub(super) fn cancel(hits: u32) -> Op {
    Op::Reservation(ReservationOp::Cancel(hits))
}

/// Returns a charge of a key, for what an id has reserved.
pub(super) fn charge_of<'a>(
    entries: &'a [Entry<'a>],
    plan: &'a Arc<Plan>,
    op: Op,
    id: &'a str,
) -> Charge<'a> {
    let hold = matches!(op, Op::Reservation(_)).then_some(id);
    let key = Key { domain: "reservations", entries };
    Charge { key, plan, op, hold, role: Role::Enforced }
}

/// Makes one operation.
pub(super) async fn make(
    store: &impl Store,
    value: &str,
    plan: &Arc<Plan>,
    op: Op,
    id: &str,
) -> Decision {
    let entries = [("key", value)];
    charge(store, &[charge_of(&entries, plan, op, id)], false).await.swap_remove(0)
}

/// Makes one operation in a domain with `charge: together`.
pub(super) async fn make_together(
    store: &impl Store,
    value: &str,
    plan: &Arc<Plan>,
    op: Op,
    id: &str,
) -> Decision {
    let entries = [("key", value)];
    charge(store, &[charge_of(&entries, plan, op, id)], true).await.swap_remove(0)
}

/// Returns the hits that the first limit of a key of such a domain has counted.
pub(super) async fn counted_together(store: &impl Store, value: &str, plan: &Arc<Plan>) -> u64 {
    make_together(store, value, plan, Op::Take(0), "").await.used_before
}

/// Returns the hits that the first limit of a key has counted.
pub(super) async fn counted(store: &impl Store, value: &str, plan: &Arc<Plan>) -> u64 {
    take(store, "reservations", value, plan, 0).await.used_before
}

/// Returns the hits that the limits of a key have counted.
pub(super) async fn used(store: &impl States, key: StateKey<'_>) -> Vec<u64> {
    let read = store.read(key, &[], TIMEOUT).await.expect("a state");
    read.limits.iter().map(|limit| limit.used).collect()
}
