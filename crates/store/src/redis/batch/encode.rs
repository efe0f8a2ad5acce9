//! Entries of charge.lua and of the lean scripts, in the packed formats of [`codec`](crate::redis::codec).

use super::{ChargeOp, PendingCharge};
use crate::redis::codec::numbers::{self, op};
use crate::redis::codec::put;
use weir_limit::{Op, ReservationOp, Undo, UpTo};

/// Writes the hits of an operation, and that it is made once.
pub(super) fn write_times(op: ChargeOp, out: &mut Vec<u8>) {
    out.extend_from_slice(&op.hits().to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
}

/// Returns the role of an entry of charge.lua, with what its failure comes to.
pub(super) fn role(charge: &PendingCharge) -> u8 {
    numbers::role(charge.role, charge.denial_where_failed)
}

/// Writes a run of an entry of charge.lua.
pub(super) fn write_run(charge: &PendingCharge, out: &mut Vec<u8>) {
    let made = match charge.op {
        // Without an id there is nothing to settle, and nothing is kept.
        ChargeOp::Op(Op::Reservation(op)) if charge.record().is_none() => {
            ChargeOp::Op(op.charge(None))
        }
        made => made,
    };
    out.push(match made {
        ChargeOp::Op(Op::Take(_)) => op::TAKE,
        // Only counters are settled, by their own script.
        ChargeOp::Op(Op::Refund(_)) | ChargeOp::Settle(_) => op::REFUND,
        ChargeOp::Op(Op::Undo(_)) => op::UNDO,
        ChargeOp::Op(Op::UpTo(_)) => op::UPTO,
        ChargeOp::Op(Op::Add { .. }) => op::ADD,
        ChargeOp::Op(Op::Reservation(ReservationOp::Reserve(_))) => op::RESERVE,
        ChargeOp::Op(Op::Reservation(ReservationOp::ReserveOnce(..))) => op::RESERVE_ONCE,
        ChargeOp::Op(Op::Reservation(ReservationOp::Settle(_))) => op::SETTLE,
        ChargeOp::Op(Op::Reservation(ReservationOp::SettleKnown(_))) => op::SETTLE_KNOWN,
        ChargeOp::Op(Op::Reservation(ReservationOp::SettleOrReserve(..))) => op::SETTLE_OR_RESERVE,
        ChargeOp::Op(Op::Reservation(ReservationOp::Cancel(_))) => op::CANCEL,
    });
    write_times(made, out);
    if charge.plan.hold_id().is_some() {
        out.extend_from_slice(&charge.hold().to_le_bytes());
    }
    if let Some(Undo { taken, limits, .. }) = made.undo() {
        put(out, *taken);
        out.extend_from_slice(&limits.to_le_bytes());
    }
    if let ChargeOp::Op(Op::UpTo(UpTo { least, most, share })) = made {
        out.extend_from_slice(&most.saturating_sub(least).to_le_bytes());
        out.extend_from_slice(&share.get().to_le_bytes());
    }
    if let ChargeOp::Op(Op::Add { limits, .. }) = made {
        out.extend_from_slice(&limits.to_le_bytes());
    }
    if let ChargeOp::Op(Op::Reservation(op)) = made {
        let (least, more, timeout) = match op {
            ReservationOp::Reserve(it)
            | ReservationOp::ReserveOnce(it, _)
            | ReservationOp::SettleOrReserve(_, it) => {
                (it.least, it.most.saturating_sub(it.least), it.timeout)
            }
            ReservationOp::Settle(_) | ReservationOp::SettleKnown(_) | ReservationOp::Cancel(_) => {
                (0, 0, 0)
            }
        };
        for number in [least, more, timeout] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}
