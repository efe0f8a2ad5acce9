//! What is gathered, made into the commands of one trip.

use std::collections::HashMap;

use tokio::time::Instant;

use super::{Ask, Call, Item, Plain, Together};
use crate::limit::{Micros, Op};
use crate::store::redis::known::Known;
use crate::store::redis::script::Kind;

/// Entries of one call: beyond it a call is hardly cheaper an entry, and others wait for it.
const MAX_ENTRIES: usize = 64;

/// What the time is.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Times {
    /// By the clock that counts, where that is the caller's; else 0.
    pub now: Micros,
    /// At the caller.
    pub wall: Micros,
    /// Milliseconds to keep states for longer than they need.
    pub slack: u32,
}

/// What travels in one trip: calls, and after them what needs none.
#[derive(Debug)]
pub(in super::super) struct Load {
    pub calls: Vec<Call>,
    pub plain: Vec<Plain>,
    pub times: Times,
}

/// Makes a load of `items`, in their order. `about`: what the time is about, where keys whose
/// windows are known may do without a script.
pub(in super::super) fn load(
    items: Vec<Item>,
    times: Times,
    known: &Known,
    about: Option<Micros>,
) -> Load {
    let (calls, plain, open, last) = Default::default();
    let mut trip = Trip { calls, plain, known, about, open, last };
    // What waited behind a slow round trip is sent only within its own budget.
    let at = Instant::now();
    for item in items {
        if item.reply.is_awaited(at) {
            trip.add(item);
        }
    }
    for call in &mut trip.calls {
        call.finish(times);
    }
    trip.plain.retain(|plain| plain.len() > 0);
    Load { calls: trip.calls, plain: trip.plain, times }
}

impl Load {
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.plain.is_empty()
    }

    /// How many charges it makes, under how many keys, and how many of these without a script.
    pub fn len(&self) -> (usize, usize, usize) {
        let plain = (self.plain.iter().map(Plain::len).sum(), self.plain.len());
        let calls = self.calls.iter().map(Call::len);
        let (charges, keys) = calls.fold(plain, |sum, of| (sum.0 + of.0, sum.1 + of.1));
        (charges, keys, self.plain.len())
    }
}

#[derive(Debug)]
struct Trip<'k> {
    calls: Vec<Call>,
    plain: Vec<Plain>,
    known: &'k Known,
    about: Option<Micros>,
    /// The call that others like it are added to.
    open: HashMap<(Kind, u16, bool, Option<Together>), usize>,
    /// Where a key was charged last; by the key's hash.
    last: HashMap<u64, Place>,
}

/// Where a charge is in a trip.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Which call, and which of its entries.
    Call(usize, usize),
    Plain(usize),
}

impl Trip<'_> {
    fn add(&mut self, item: Item) {
        let hash = self.known.hash(&item.key);
        let mut item = item;
        match self.last.get(&hash) {
            Some(&Place::Plain(at)) if self.plain[at].key() == &*item.key => {
                item = match self.plain[at].merge(item) {
                    Ok(()) => return,
                    Err(item) => item,
                };
                // All by the script, so that the key's charges stay in order.
                self.last.remove(&hash);
                for item in self.plain[at].take_items() {
                    self.add_to_calls(item, hash);
                }
            }
            None if self.about.is_some_and(|now| self.known.is_open(hash, now)) => {
                item = match Plain::new(item, hash) {
                    Ok(plain) => {
                        self.last.insert(hash, Place::Plain(self.plain.len()));
                        return self.plain.push(plain);
                    }
                    Err(item) => item,
                };
            }
            _ => {}
        }
        self.add_to_calls(item, hash);
    }

    fn add_to_calls(&mut self, item: Item, hash: u64) {
        let takes = matches!(item.op, Ask::Op(Op::Take(1..)));
        let kind = match item.together {
            None if item.plan.counter().is_some() => Kind::Counter,
            None if takes && item.plan.is_lone_gcra() => Kind::Gcra,
            None if takes && item.plan.is_windows() => Kind::Windows,
            _ => Kind::Charge(item.plan.algorithms()),
        };
        let last = match self.last.get(&hash) {
            Some(&Place::Call(call, entry))
                if self.calls[call].entries[entry].items[0].key == item.key =>
            {
                Some((call, entry))
            }
            _ => None,
        };
        if item.together.is_none()
            && !item.alone
            && let Some((call, entry)) = last
            && self.calls[call].asking == item.asking
            && self.calls[call].kind == kind
        {
            match self.calls[call].merge(entry, item) {
                Ok(()) => {}
                // In the same call or a later one: its key's charges stay in order.
                Err(item) => self.push(kind, item, hash, call),
            }
        } else {
            self.push(kind, item, hash, last.map_or(0, |(call, _)| call));
        }
    }

    /// Adds an entry to a call, not to one before call `after`: a key's charges are made in order.
    fn push(&mut self, kind: Kind, item: Item, hash: u64, after: usize) {
        // What is charged together needs one call, whatever its algorithms.
        let like = match item.together {
            Some(_) => (Kind::Counter, 0, item.asking, item.together),
            None => (kind, item.slot, item.asking, None),
        };
        let open = self.open.get(&like).copied().filter(|&at| {
            let call = &self.calls[at];
            if at < after && call.together.is_none() {
                return false;
            }
            call.together.is_some()
                || !item.alone && call.entries.len() < MAX_ENTRIES && call.rules.len() < 255
        });
        let at = open.unwrap_or_else(|| {
            self.calls.push(Call::new(kind, item.asking, item.together));
            let at = self.calls.len() - 1;
            if !item.alone {
                self.open.insert(like, at);
            }
            at
        });
        let call = &mut self.calls[at];
        if let (Kind::Charge(bits), Kind::Charge(more)) = (&mut call.kind, kind) {
            *bits |= more;
        }
        if item.together.is_none() && !item.alone {
            self.last.insert(hash, Place::Call(at, call.entries.len()));
        }
        call.push(item, hash);
    }
}
