//! Charges of counters: as entries of counter.lua, or as plain `INCRBY`s, whose result is the same as
//! [`open_windows`](crate::redis::open_windows) explains.

use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::{ChargeOp, PendingCharge, add_one, fail_all, short};
use crate::StoreError;
use crate::redis::codec::numbers::counter_op;
use crate::redis::codec::{PlanCodec, counter_number, is_overfull, put, windows_ahead};
use crate::redis::open_windows::OpenWindows;
use crate::redis::reply::Reply;
use weir_limit::{Limit, Micros, Op};

/// The most hits of one `INCRBY`; more go by the script. A counter has room for 65,536 times as many
/// above its maximum, so it would take as many round trips at once to reach the next window.
const MAX_HITS: u32 = 1 << 16;

/// Returns the operation of an entry of counter.lua; none if charge.lua has to charge it.
pub(super) fn counter_op(charge: &PendingCharge) -> Option<u8> {
    let (limit, _) = PlanCodec(&charge.plan).counter()?;
    match charge.op {
        ChargeOp::Op(Op::Take(0)) => Some(counter_op::LOOK),
        ChargeOp::Op(Op::Take(_)) if limit.charge_denied => Some(counter_op::TAKE),
        ChargeOp::Op(Op::Take(_)) => Some(counter_op::ADMIT),
        ChargeOp::Op(Op::Refund(_)) => Some(counter_op::REFUND),
        ChargeOp::Op(Op::Undo(_)) => Some(counter_op::UNDO),
        ChargeOp::Op(Op::UpTo(_) | Op::Add { .. } | Op::Reservation(_)) => None,
        ChargeOp::Settle(_) => Some(counter_op::SETTLE),
    }
}

/// Writes the numbers of an entry of counter.lua.
pub(super) fn write_counter(charge: &PendingCharge, op: u8, n: u32, out: &mut Vec<u8>) {
    if op != counter_op::LOOK {
        // Its only limit may not have charged what is undone.
        let is_charged = charge.op.undo().is_none_or(|undo| undo.limits & 1 > 0);
        let hits = if is_charged { charge.op.hits() } else { 0 };
        out.extend_from_slice(&hits.to_le_bytes());
    }
    if op == counter_op::ADMIT {
        out.extend_from_slice(&1_u32.to_le_bytes());
        out.extend_from_slice(&n.to_le_bytes());
    }
    if let Some(undo) = charge.op.undo() {
        put(out, undo.taken);
    }
}

/// Adds a charge to an entry of counter.lua, whose numbers are `body`; returns whether it could.
pub(super) fn merge_counters(
    charges: &[PendingCharge],
    charge: &PendingCharge,
    body: &mut [u8],
) -> bool {
    let Some((limit, window)) = PlanCodec(&charge.plan).counter() else { return false };
    let (Some(first), Some(last)) = (charges.first(), charges.last()) else { return false };
    let same = |(other, _): (&Limit, _)| other.charge_denied == limit.charge_denied;
    if !PlanCodec(&first.plan).counter().is_some_and(same) {
        return false;
    }
    let Some(op) = counter_op(first) else { return false };
    match (op, charge.op) {
        // A look beside hits that are all counted, or beside another look.
        (counter_op::LOOK | counter_op::TAKE, ChargeOp::Op(Op::Take(0))) => true,
        (counter_op::TAKE, ChargeOp::Op(Op::Take(_))) => {
            // A count saturates at u32::MAX, too.
            let sum = short(body).saturating_add(charge.op.hits());
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

/// Charges of one key that one `INCRBY` makes.
#[derive(Debug)]
pub(in super::super) struct Increment {
    charges: SmallVec<[PendingCharge; 1]>,
    hits: u32,
    hash: u64,
}

impl Increment {
    /// Starts with a charge; returns it where it needs a script.
    pub fn new(charge: PendingCharge, hash: u64) -> Result<Increment, PendingCharge> {
        match plain_hits(&charge) {
            Some(hits @ 1..) => Ok(Increment { charges: smallvec![charge], hits, hash }),
            _ => Err(charge),
        }
    }

    /// Returns the key; empty where the charges were taken.
    pub fn key(&self) -> &[u8] {
        self.charges.first().map_or(&[], |charge| &charge.key)
    }

    /// Adds a charge of the same key; returns it where it needs a script.
    pub fn merge(&mut self, charge: PendingCharge) -> Result<(), PendingCharge> {
        match plain_hits(&charge).map(|hits| self.hits + hits) {
            Some(sum @ ..=MAX_HITS) => {
                self.hits = sum;
                self.charges.push(charge);
                Ok(())
            }
            _ => Err(charge),
        }
    }

    pub fn command(&self) -> redis::Cmd {
        let mut command = redis::Cmd::with_capacity(3, self.key().len() + 16);
        command.arg("INCRBY").arg(self.key()).arg(self.hits);
        command
    }

    /// Returns how many charges the command makes.
    pub fn len(&self) -> usize {
        self.charges.len()
    }

    /// Takes the charges, to make them by a script or to fail them.
    pub fn take_charges(&mut self) -> SmallVec<[PendingCharge; 1]> {
        std::mem::take(&mut self.charges)
    }

    /// Answers its charges, which may have been made, with an error.
    pub fn fail(&self, error: StoreError) {
        self.charges.iter().for_each(|charge| charge.fail(error));
    }

    /// Returns the charge that repairs the key where no reply says whether the hits were added.
    pub fn into_settle(self) -> Option<PendingCharge> {
        self.charges.first().map(|charge| settle(charge, 0))
    }

    /// Answers what was counted: `new` is the reply to `INCRBY`, and `now` the time after it. Returns
    /// the charges left to the script, and the error of the key.
    pub fn answer(
        self,
        new: i64,
        now: Micros,
        open_windows: &mut OpenWindows,
    ) -> (SmallVec<[PendingCharge; 1]>, Option<StoreError>) {
        let Some(first) = self.charges.first() else { return (SmallVec::new(), None) };
        let period = PlanCodec(&first.plan).counter().map_or(1, |(_, window)| window.period);
        let before = new.checked_sub(self.hits.into()).and_then(counter_number);
        let (Some(number), Some(after)) = (before, counter_number(new)) else {
            open_windows.remove(self.hash);
            let left = settle(first, self.hits);
            fail_all(self.charges, StoreError::Corrupt);
            return (smallvec![left], Some(StoreError::Corrupt));
        };
        let ahead = windows_ahead(number, period, now);
        if let Some(ahead @ 0..) = ahead
            && let Some(mut state) = PlanCodec(&first.plan).read_counter(number, now)
        {
            let mut left = SmallVec::new();
            if ahead > 1 || is_overfull(after) {
                open_windows.remove(self.hash);
                left.push(settle(first, 0));
            }
            for charge in self.charges {
                charge.decide(&mut state, None, now);
            }
            return (left, None);
        }
        open_windows.remove(self.hash);
        let repair = settle(first, 0);
        let mut left = self.charges;
        let at = Instant::now();
        left.retain(|charge| charge.reply.is_awaited(at));
        if left.is_empty() && ahead.is_none() {
            left.push(repair);
        }
        (left, None)
    }
}

/// Returns the hits of a charge that `INCRBY` can make, 0 for a look.
pub(super) fn plain_hits(charge: &PendingCharge) -> Option<u32> {
    let hits = charge.op.takes()?;
    let plain = charge.group.is_none() && !charge.alone && !charge.asking;
    let counts_all =
        PlanCodec(&charge.plan).counter().is_some_and(|(limit, _)| limit.charge_denied);
    u32::try_from(hits).ok().filter(|&hits| plain && counts_all && hits <= MAX_HITS)
}

/// Returns the charge that repairs the key of another one.
fn settle(charge: &PendingCharge, hits: u32) -> PendingCharge {
    PendingCharge {
        op: ChargeOp::Settle(hits),
        reply: Reply::new(1, StoreError::TimedOut, None),
        index: 0,
        ..charge.clone()
    }
}
