//! Charges as the scripts read them.

use super::{Ask, Item};
use crate::limit::{Limit, Op};
use crate::store::redis::codec::numbers::{self, counter_op, op};
use crate::store::redis::codec::put;

/// What the script of counters is to do.
pub(super) fn counter_op(op: &Ask, limit: &Limit) -> u8 {
    match op {
        Ask::Op(Op::Take(0)) => counter_op::LOOK,
        Ask::Op(Op::Take(_)) if limit.charge_denied => counter_op::TAKE,
        Ask::Op(Op::Take(_)) => counter_op::ADMIT,
        Ask::Op(Op::GiveBack(_)) => counter_op::GIVE_BACK,
        Ask::Undo(..) => counter_op::UNDO,
        Ask::Settle(_) => counter_op::SETTLE,
    }
}

fn hits(op: &Ask) -> u32 {
    let hits = match *op {
        Ask::Op(Op::Take(hits) | Op::GiveBack(hits)) => hits,
        Ask::Undo(hits, _) | Ask::Settle(hits) => hits.into(),
    };
    u32::try_from(hits).unwrap_or(u32::MAX)
}

/// The numbers of an entry of the script of counters.
pub(super) fn write_counter(item: &Item, op: u8, n: u32, out: &mut Vec<u8>) {
    if op != counter_op::LOOK {
        out.extend_from_slice(&hits(&item.op).to_le_bytes());
    }
    if op == counter_op::ADMIT {
        out.extend_from_slice(&1_u32.to_le_bytes());
        out.extend_from_slice(&n.to_le_bytes());
    }
    if let Ask::Undo(_, taken) = item.op {
        put(out, taken);
    }
}

/// Adds a charge to an entry of counters, whose numbers are `body`.
pub(super) fn merge_counters(items: &[Item], item: &Item, body: &mut [u8]) -> bool {
    let Some((limit, window)) = item.plan.counter() else { return false };
    let (Some(first), Some(last)) = (items.first(), items.last()) else { return false };
    let alike = |(other, _): (&Limit, _)| other.charge_denied == limit.charge_denied;
    if !first.plan.counter().is_some_and(alike) {
        return false;
    }
    match (counter_op(&first.op, limit), item.op) {
        // A look beside hits that are all counted, or beside another.
        (counter_op::LOOK | counter_op::TAKE, Ask::Op(Op::Take(0))) => true,
        (counter_op::TAKE, Ask::Op(Op::Take(_))) => {
            // The count saturates there; with the window in the key it would not.
            let sum = u64::from(short(body)) + u64::from(hits(&item.op));
            let Ok(sum) = u32::try_from(if item.in_key { sum } else { sum.min(u32::MAX.into()) })
            else {
                return false;
            };
            body[..4].copy_from_slice(&sum.to_le_bytes());
            true
        }
        (counter_op::ADMIT, op) if op == last.op && short(&body[8..]) == window.n => {
            add_one(&mut body[4..8]);
            true
        }
        _ => false,
    }
}

fn short(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn add_one(bytes: &mut [u8]) {
    let more = short(bytes) + 1;
    bytes.copy_from_slice(&more.to_le_bytes());
}

pub(super) fn write_times(item: &Item, out: &mut Vec<u8>) {
    out.extend_from_slice(&hits(&item.op).to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
}

/// The role of an entry of the other script, and what its failure comes to.
pub(super) fn role(item: &Item) -> u8 {
    numbers::role(item.role, item.denial_where_failed)
}

/// A run of the other script.
pub(super) fn write_run(item: &Item, out: &mut Vec<u8>) {
    out.push(match item.op {
        Ask::Op(Op::Take(_)) => op::TAKE,
        // Settled are counters alone, by their own script.
        Ask::Op(Op::GiveBack(_)) | Ask::Settle(_) => op::GIVE_BACK,
        Ask::Undo(..) => op::UNDO,
    });
    write_times(item, out);
    if item.plan.hold_id().is_some() {
        out.extend_from_slice(&item.hold.to_le_bytes());
    }
    if let Ask::Undo(_, taken) = item.op {
        put(out, taken);
    }
}
