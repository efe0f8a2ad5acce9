//! Writes the entries of script calls: what a script does with one key, in the packed formats of
//! [`codec`](crate::codec). `script_call` calls it for each charge.

use crate::codec::format::put;
use crate::codec::numbers::{counter_op, op};
use crate::counter::lone_window;
use crate::pending_charge::PendingCharge;
use weir_limit::{Limit, Op, Otherwise, ReservationOp, Reserve, Undo, UpTo};

/// Writes the hits of an operation, and that it is made once.
pub(super) fn write_times(op: Op, out: &mut Vec<u8>) {
    out.extend_from_slice(&hits(op).to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
}

/// Returns the hits that the scripts read; of a request to reserve, the tag by which its repetition is known.
fn hits(op: Op) -> u32 {
    match op {
        Op::Take(hits) | Op::Refund(hits) => u32::try_from(hits).unwrap_or(u32::MAX),
        Op::UpTo(UpTo { least, .. }) => least,
        Op::Reservation(ReservationOp::Reserve { once, .. }) => {
            once.map_or(0, |tag| tag.get().into())
        }
        Op::Reservation(ReservationOp::Settle { used: hits, .. } | ReservationOp::Cancel(hits))
        | Op::Undo(Undo { hits, .. })
        | Op::Add { hits, .. } => hits,
    }
}

/// Writes a run, one operation of an entry, for charge.lua.
pub(super) fn write_run(charge: &PendingCharge, out: &mut Vec<u8>) {
    out.push(match charge.op {
        Op::Take(_) => op::TAKE,
        Op::Refund(_) => op::REFUND,
        Op::Undo(_) => op::UNDO,
        Op::UpTo(_) => op::UPTO,
        Op::Add { .. } => op::ADD,
        Op::Reservation(ReservationOp::Reserve { .. }) => op::RESERVE,
        Op::Reservation(ReservationOp::Settle { .. }) => op::SETTLE,
        Op::Reservation(ReservationOp::Cancel(_)) => op::CANCEL,
    });
    write_times(charge.op, out);
    if charge.plan.hold_id().is_some() {
        out.extend_from_slice(&charge.hold.to_le_bytes());
    }
    match charge.op {
        Op::Take(_) | Op::Refund(_) => {}
        Op::Undo(Undo { taken, limits, .. }) => {
            put(out, taken);
            out.extend_from_slice(&limits.to_le_bytes());
        }
        Op::UpTo(UpTo { least, most, share }) => {
            out.extend_from_slice(&most.saturating_sub(least).to_le_bytes());
            out.extend_from_slice(&share.get().to_le_bytes());
        }
        Op::Add { limits, .. } => out.extend_from_slice(&limits.to_le_bytes()),
        Op::Reservation(op) => {
            out.push(match (op, op.reserve()) {
                (_, Some(_)) => op::OR_RESERVE,
                (ReservationOp::Settle { otherwise: Otherwise::Charge, .. }, _) => op::OR_CHARGE,
                _ => op::OR_NOTHING,
            });
            let nothing = Reserve { least: 0, most: 0, timeout: 0 };
            let Reserve { least, most, timeout } = op.reserve().unwrap_or(nothing);
            for number in [least, most.saturating_sub(least), timeout] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
}

/// Returns the operation of an entry of counter.lua; none if charge.lua has to charge it.
pub(super) fn counter_op(charge: &PendingCharge) -> Option<u8> {
    let (limit, _) = lone_window(&charge.plan)?;
    match charge.op {
        _ if charge.repairs => Some(counter_op::REPAIR),
        Op::Take(0) => Some(counter_op::LOOK),
        Op::Take(_) if limit.charge_denied => Some(counter_op::TAKE),
        Op::Take(_) => Some(counter_op::ADMIT),
        Op::Refund(_) => Some(counter_op::REFUND),
        Op::Undo(_) => Some(counter_op::UNDO),
        Op::UpTo(_) | Op::Add { .. } | Op::Reservation(_) => None,
    }
}

/// Writes the numbers of an entry of counter.lua.
pub(super) fn write_counter(charge: &PendingCharge, op: u8, n: u32, out: &mut Vec<u8>) {
    if op != counter_op::LOOK {
        let hits = match charge.op {
            // Its only limit did not charge what is undone.
            Op::Undo(Undo { limits, .. }) if limits & 1 == 0 => 0,
            op => hits(op),
        };
        out.extend_from_slice(&hits.to_le_bytes());
    }
    if op == counter_op::ADMIT {
        out.extend_from_slice(&1_u32.to_le_bytes());
        out.extend_from_slice(&n.to_le_bytes());
    }
    if let Op::Undo(Undo { taken, .. }) = charge.op {
        put(out, taken);
    }
}

/// Adds a charge to an entry of counter.lua, whose numbers are `body`; returns whether it could.
pub(super) fn merge_counters(
    charges: &[PendingCharge],
    charge: &PendingCharge,
    body: &mut [u8],
) -> bool {
    let Some((limit, window)) = lone_window(&charge.plan) else { return false };
    let (Some(first), Some(last)) = (charges.first(), charges.last()) else { return false };
    let same = |(other, _): (&Limit, _)| other.charge_denied == limit.charge_denied;
    if !lone_window(&first.plan).is_some_and(same) {
        return false;
    }
    let Some(op) = counter_op(first) else { return false };
    match (op, charge.op) {
        // A look beside hits that are all counted, or beside another look.
        (counter_op::LOOK | counter_op::TAKE, Op::Take(0)) => true,
        (counter_op::TAKE, Op::Take(_)) => {
            // A count saturates at u32::MAX, too.
            let sum = short(body).saturating_add(hits(charge.op));
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

/// Reads the first four bytes.
fn short(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn add_one(bytes: &mut [u8]) {
    let more = short(bytes) + 1;
    bytes.copy_from_slice(&more.to_le_bytes());
}
