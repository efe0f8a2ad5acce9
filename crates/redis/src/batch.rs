//! Turns the charges of many requests that wait for the next round trip into few commands: calls of Lua scripts, and
//! plain `INCRBY`s. A charge is what one request does with its hits of one key.
//!
//! Charges of one key that wait for the same round trip become one entry of a call and still get the answers that they
//! would have got one by one: the script returns the state before the call, and each charge is decided again from
//! there, by the same arithmetic.

mod encode;
pub(super) mod script_call;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use self::encode::counter_op;
use self::script_call::{BatchContext, ScriptCall};
use super::codec::PlanCodec;
use super::codec::reservation::RESERVATIONS;
use super::counter::{Increment, OpenWindows};
use super::key;
use super::pending_charge::{Group, PendingCharge, Reply};
use super::script::ScriptKind;
use weir_limit::{Micros, Op};

/// The most entries (keys) of a call: a longer one is hardly cheaper per entry, and Redis's other clients wait for it.
const MAX_ENTRIES: usize = 64;

/// The commands of one round trip: script calls, and after them plain `INCRBY`s.
#[derive(Debug)]
pub(crate) struct CommandBatch {
    pub calls: Vec<ScriptCall>,
    pub increments: Vec<Increment>,
    pub context: BatchContext,
    /// The requests of its charges that have tracing spans.
    pub recorded: Vec<Arc<Reply>>,
}

impl CommandBatch {
    /// Builds the commands of `charges`, in their order. Keys whose window is open at `now`, an estimate of the
    /// server's time, may go without a script.
    pub fn build(
        charges: Vec<PendingCharge>,
        context: BatchContext,
        open_windows: &OpenWindows,
        now: Option<Micros>,
    ) -> CommandBatch {
        let (calls, increments, recorded, open_calls, last) = Default::default();
        let batch = CommandBatch { calls, increments, context, recorded };
        let mut builder = BatchBuilder { batch, open_windows, now, open_calls, last };
        // A charge that waited behind a slow round trip is sent only within its own timeout.
        let at = Instant::now();
        let mut asking = Vec::new();
        for charge in charges {
            if charge.reply.lease().is_some_and(|lease| lease.asks()) {
                asking.push(charge);
                continue;
            }
            if charge.reply.is_awaited(at) {
                // The charges of a request are next to each other.
                let recorded = &mut builder.batch.recorded;
                if charge.reply.is_recorded()
                    && recorded.last().is_none_or(|last| !Arc::ptr_eq(last, &charge.reply))
                {
                    recorded.push(charge.reply.clone());
                }
                builder.add(charge);
            }
        }
        // Behind what requests charge.
        asking.into_iter().for_each(|charge| builder.add(charge));
        let mut batch = builder.batch;
        batch.calls.iter_mut().for_each(|call| call.finish(context));
        // Those whose charges went to the script are empty.
        batch.increments.retain(|increment| increment.len() > 0);
        batch
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.increments.is_empty()
    }

    /// Returns how many charges it makes, under how many keys, and how many of these without a script.
    pub fn len(&self) -> (usize, usize, usize) {
        let increments = (self.increments.iter().map(Increment::len).sum(), self.increments.len());
        let calls = self.calls.iter().map(ScriptCall::len);
        let (charges, keys) = calls.fold(increments, |sum, call| (sum.0 + call.0, sum.1 + call.1));
        (charges, keys, self.increments.len())
    }
}

#[derive(Debug)]
struct BatchBuilder<'w> {
    batch: CommandBatch,
    open_windows: &'w OpenWindows,
    now: Option<Micros>,
    /// The calls that more entries are added to, by what their entries have in common.
    open_calls: HashMap<(ScriptKind, u16, bool, Option<Group>), usize>,
    /// Where a key was charged last, by the key's hash.
    last: HashMap<u64, Place>,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// The call, and its entry.
    Call(usize, usize),
    Increment(usize),
}

impl BatchBuilder<'_> {
    fn add(&mut self, mut charge: PendingCharge) {
        let hash = self.open_windows.hash(&charge.key);
        match self.last.get(&hash) {
            Some(&Place::Increment(at)) if self.batch.increments[at].key() == &*charge.key => {
                charge = match self.batch.increments[at].merge(charge) {
                    Ok(()) => return,
                    Err(charge) => charge,
                };
                // All of them by the script, so that the key's charges stay in order.
                self.last.remove(&hash);
                for charge in self.batch.increments[at].take_charges() {
                    self.add_to_calls(charge, hash);
                }
            }
            None if self.now.is_some_and(|now| self.open_windows.is_open(hash, now)) => {
                charge = match Increment::new(charge, hash) {
                    Ok(increment) => {
                        self.last.insert(hash, Place::Increment(self.batch.increments.len()));
                        return self.batch.increments.push(increment);
                    }
                    Err(charge) => charge,
                };
            }
            _ => {}
        }
        self.add_to_calls(charge, hash);
    }

    fn add_to_calls(&mut self, charge: PendingCharge, hash: u64) {
        let codec = PlanCodec(&charge.plan);
        let takes = matches!(charge.op, Op::Take(1..));
        let kind = match charge.group {
            None if counter_op(&charge).is_some() => ScriptKind::Counter,
            None if takes && codec.is_lone_gcra() => ScriptKind::Gcra,
            None if takes && codec.is_windows() => ScriptKind::Windows,
            None if charge.record.is_some() => ScriptKind::Reserve(codec.algorithms()),
            _ => {
                let reservations = if charge.record.is_some() { RESERVATIONS } else { 0 };
                ScriptKind::Charge(codec.algorithms() | reservations)
            }
        };
        let last = match self.last.get(&hash) {
            Some(&Place::Call(call, entry))
                if self.batch.calls[call].key(entry) == &*charge.key =>
            {
                Some((call, entry))
            }
            _ => None,
        };
        // In the call of the key's last charge, which charges the same algorithms: nobody else is charged between.
        let kind = match (kind, last.map(|(call, _)| self.batch.calls[call].kind)) {
            (ScriptKind::Charge(_) | ScriptKind::Reserve(_), _) => kind,
            (_, Some(before @ ScriptKind::Charge(_))) => before,
            _ => kind,
        };
        if charge.group.is_none()
            && !charge.alone
            && let Some((call, entry)) = last
            && self.batch.calls[call].asking == charge.asking
            && self.batch.calls[call].kind == kind
        {
            match self.batch.calls[call].merge(entry, charge) {
                Ok(()) => {}
                // In the same call or a later one: its key's charges stay in order.
                Err(charge) => self.push(kind, charge, hash, Some(call)),
            }
        } else {
            self.push(kind, charge, hash, last.map(|(call, _)| call));
        }
    }

    /// Adds an entry to a call, but not to one before call `last`: a key's charges stay in order.
    fn push(&mut self, kind: ScriptKind, charge: PendingCharge, hash: u64, last: Option<usize>) {
        // A group needs one call, whatever its algorithms.
        let like = match charge.group {
            Some(_) => (ScriptKind::Counter, 0, charge.asking, charge.group),
            None => (kind, charge.slot, charge.asking, None),
        };
        let open = self.open_calls.get(&like).copied().filter(|&at| {
            let call = &self.batch.calls[at];
            let (entries, rules) = call.size();
            if last.is_some_and(|last| at < last) && call.group.is_none() {
                return false;
            }
            // Keys of one slot may be on two servers behind a proxy, those of one tag are not.
            if self.batch.context.is_proxy && key::tag(&charge.key) != key::tag(call.key(0)) {
                return false;
            }
            call.group.is_some() || !charge.alone && entries < MAX_ENTRIES && rules < 255
        });
        let at = open.unwrap_or_else(|| {
            self.batch.calls.push(ScriptCall::new(kind, charge.asking, charge.group));
            let at = self.batch.calls.len() - 1;
            if !charge.alone {
                self.open_calls.insert(like, at);
            }
            at
        });
        if let Some(last) = last.filter(|last| self.batch.context.is_proxy && *last < at) {
            // Its server may lack the script that another one has: sent again, it would be made after this call.
            self.batch.calls[last].script_missing = true;
        }
        let call = &mut self.batch.calls[at];
        if let (ScriptKind::Charge(bits), ScriptKind::Charge(more)) = (&mut call.kind, kind) {
            *bits |= more;
        }
        if charge.group.is_none() && !charge.alone {
            self.last.insert(hash, Place::Call(at, call.size().0));
        }
        call.push(charge, hash);
    }
}
