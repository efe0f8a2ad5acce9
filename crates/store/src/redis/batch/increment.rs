//! Hits of one key added by plain `INCRBY`; [`open_windows`](crate::redis::open_windows)
//! explains why the result is the same as the script's.

use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::pending::{ChargeOp, PendingCharge, fail_all};
use crate::StoreError;
use crate::redis::codec::{PlanCodec, counter_number, is_overfull, windows_ahead};
use crate::redis::open_windows::OpenWindows;
use crate::redis::reply::Reply;
use weir_limit::Micros;

/// The most hits of one `INCRBY`; more go by the script. A counter has room for 65,536 times as many
/// above its maximum, so it would take as many round trips at once to reach the next window.
const MAX_HITS: u32 = 1 << 16;

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
        match hits(&charge) {
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
        match hits(&charge).map(|hits| self.hits + hits) {
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
pub(super) fn hits(charge: &PendingCharge) -> Option<u32> {
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
