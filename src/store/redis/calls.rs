//! What decisions ask for, made into as few script calls as may be; and what the scripts reply, made
//! into answers.
//!
//! Charges of one key that wait for the same trip become one entry of a call, and get the answers
//! they would have had one by one: the script tells the state as it was, and each charge is judged
//! again from there, by the same arithmetic.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::reply::Reply;
use super::script::Kind;
use crate::limit::stored::{Reader, put};
use crate::limit::{Micros, Op, Plan, State};
use crate::store::{Answer, Failed, Role};

/// Entries of one call: beyond it a call is hardly cheaper an entry, and others wait for it.
const MAX_ENTRIES: usize = 64;

/// One charge on its way.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub key: Box<[u8]>,
    pub slot: u16,
    pub plan: Arc<Plan>,
    pub op: Ask,
    /// Stands for the hold's id.
    pub hold: u64,
    pub role: Role,
    /// Charges with the same number are charged together.
    pub together: Option<Together>,
    /// The window is part of the key.
    pub in_key: bool,
    /// Sent to another node so often.
    pub hops: u8,
    /// The node is to answer although the slot is on its way to it.
    pub asking: bool,
    /// Travels in a call of its own.
    pub alone: bool,
    pub reply: Arc<Reply>,
    /// Which of the reply's answers it gets.
    pub index: usize,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Op(Op),
    /// Gives back what was taken then, where that still counts.
    Undo(u32, Micros),
}

/// Charged together with all that have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Together {
    pub number: NonZeroU32,
    /// A quota beside them passes.
    pub quota_passes: bool,
}

/// One call of a script.
#[derive(Debug)]
pub(super) struct Call {
    pub kind: Kind,
    pub asking: bool,
    keys: Vec<Box<[u8]>>,
    args: Vec<u8>,
    entries: Vec<Entry>,
    /// The rules told of, and where in the arguments their number is.
    rules: Vec<Arc<Plan>>,
    body: Vec<u8>,
    together: Option<Together>,
}

/// The charges of one key that are charged as one.
#[derive(Debug)]
struct Entry {
    items: SmallVec<[Item; 1]>,
    /// Where its runs, or its numbers, are in the arguments.
    last: Range<usize>,
    /// Where the number of its runs is.
    runs: usize,
}

/// Makes calls of `items`, in their order; `now` is the caller's clock, 0 where the server's is to
/// be used, and `wall` what the time is at the caller in either case.
pub(super) fn calls(items: Vec<Item>, now: Micros, wall: Micros, slack: u32) -> Vec<Call> {
    let mut trip = Trip::default();
    for item in items {
        if !item.reply.is_abandoned() {
            trip.add(item);
        }
    }
    for call in &mut trip.calls {
        call.finish(now, wall, slack);
    }
    trip.calls
}

#[derive(Debug, Default)]
struct Trip {
    calls: Vec<Call>,
    /// The call that others like it are added to.
    open: HashMap<(Kind, u16, bool, Option<Together>), usize>,
    /// The last entry of a key, in which call.
    last: HashMap<Box<[u8]>, (usize, usize)>,
}

impl Trip {
    fn add(&mut self, item: Item) {
        let kind = match (item.plan.counter(), item.together) {
            (Some(_), None) => Kind::Counter,
            _ => Kind::Charge(item.plan.algorithms()),
        };
        if item.together.is_none()
            && !item.alone
            && let Some(&(call, entry)) = self.last.get(&item.key)
            && self.calls[call].asking == item.asking
            && self.calls[call].kind == kind
        {
            match self.calls[call].merge(entry, item) {
                Ok(()) => return,
                // In the same call or a later one: its key's charges stay in order.
                Err(item) => self.push(kind, item),
            }
        } else {
            self.push(kind, item);
        }
    }

    fn push(&mut self, kind: Kind, item: Item) {
        // What is charged together needs one call, whatever its algorithms.
        let like = match item.together {
            Some(_) => (Kind::Counter, 0, item.asking, item.together),
            None => (kind, item.slot, item.asking, None),
        };
        let open = self.open.get(&like).copied().filter(|&call| {
            let call = &self.calls[call];
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
            self.last.insert(item.key.clone(), (at, call.entries.len()));
        }
        call.push(item);
    }
}

impl Call {
    fn new(kind: Kind, asking: bool, together: Option<Together>) -> Call {
        Call {
            kind,
            asking,
            keys: Vec::new(),
            args: Vec::new(),
            entries: Vec::new(),
            rules: Vec::new(),
            body: Vec::new(),
            together,
        }
    }

    fn push(&mut self, item: Item) {
        self.keys.push(item.key.clone());
        let from = self.body.len();
        let mut runs = 0;
        match self.kind {
            Kind::Counter => write_counter(&item, &mut self.body),
            Kind::Charge(_) => {
                if item.plan.hold_id().is_some() {
                    self.keys.push([&item.key[..], b":holds"].concat().into());
                }
                let same = |rule: &Arc<Plan>| Arc::ptr_eq(rule, &item.plan);
                let rule = self.rules.iter().position(same).unwrap_or_else(|| {
                    self.rules.push(item.plan.clone());
                    self.rules.len() - 1
                });
                let role = match item.role {
                    Role::Binds => 0,
                    Role::Quota => 1,
                    Role::Shadow => 2,
                };
                self.body.extend_from_slice(&[rule as u8, role]);
                runs = self.body.len();
                self.body.push(1);
                write_run(&item, &mut self.body);
            }
        }
        let last = from..self.body.len();
        let mut items = SmallVec::new();
        items.push(item);
        self.entries.push(Entry { items, last, runs });
    }

    /// Charges `item` with the last entry of its key, where that comes to the same.
    fn merge(&mut self, entry: usize, item: Item) -> Result<(), Item> {
        let is_last = entry + 1 == self.entries.len();
        let entry = &mut self.entries[entry];
        let Some(before) = entry.items.last() else { return Err(item) };
        let merged = match self.kind {
            Kind::Counter => {
                merge_counters(&entry.items, &item, &mut self.body[entry.last.clone()])
            }
            Kind::Charge(_) => {
                let runs = self.body[entry.runs];
                if !item.plan.merges() || !Arc::ptr_eq(&before.plan, &item.plan) {
                    false
                } else if before.op == item.op && matches!(item.op, Ask::Op(_)) {
                    let times = entry.last.end - 4..entry.last.end;
                    let bytes = &mut self.body[times];
                    let more = u32::from_le_bytes(bytes.try_into().unwrap_or_default()) + 1;
                    bytes.copy_from_slice(&more.to_le_bytes());
                    true
                } else if is_last && runs < 255 {
                    self.body[entry.runs] = runs + 1;
                    write_run(&item, &mut self.body);
                    entry.last.end = self.body.len();
                    true
                } else {
                    false
                }
            }
        };
        if !merged {
            return Err(item);
        }
        entry.items.push(item);
        Ok(())
    }

    /// Puts the arguments together.
    fn finish(&mut self, now: Micros, wall: Micros, slack: u32) {
        // Where the window is in the key, so is the caller's time.
        let in_key = self.entries.iter().flat_map(|entry| &entry.items).any(|item| item.in_key);
        put(&mut self.args, if in_key { wall } else { now });
        self.args.extend_from_slice(&slack.to_le_bytes());
        if let Kind::Charge(_) = self.kind {
            self.args.push(self.rules.len() as u8);
            for rule in &self.rules {
                rule.write_rule(wall, in_key, &mut self.args);
            }
            let together = self.together.map_or(0, |it| 1 | u8::from(it.quota_passes) << 1);
            self.args.push(together);
        }
        self.args.append(&mut self.body);
    }

    /// The command that makes it.
    pub fn command(&self, name: &str, script: &str) -> redis::Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(&**key);
        }
        command.arg(&self.args[..]);
        command
    }

    /// How many charges it makes, and under how many keys.
    pub fn len(&self) -> (usize, usize) {
        (self.entries.iter().map(|entry| entry.items.len()).sum(), self.entries.len())
    }

    /// Its charges, to be sent elsewhere or refused.
    pub fn into_items(self) -> impl Iterator<Item = Item> {
        self.entries.into_iter().flat_map(|entry| entry.items)
    }

    /// Answers every charge from what the script replied. The failures that were told of whole keys.
    pub fn answer(self, reply: &[u8]) -> SmallVec<[Failed; 1]> {
        let mut reader = Reader(reply);
        let now = reader.wide();
        let mut failures = SmallVec::new();
        for entry in self.entries {
            let state = match now {
                Some(now) => read(self.kind, &entry.items[0], &mut reader, now),
                None => Err(Failed::Corrupt),
            };
            match (state, now) {
                (Ok(mut state), Some(now)) => {
                    for item in entry.items {
                        item.reply.set(item.index, judge(&item, &mut state, now), now);
                    }
                }
                (state, _) => {
                    let failed = state.err().unwrap_or(Failed::Corrupt);
                    failures.push(failed);
                    for item in entry.items {
                        item.reply.set(item.index, Err(failed), 0);
                    }
                }
            }
        }
        failures
    }
}

/// Judges one charge from the state before it, and charges it.
fn judge(item: &Item, state: &mut State, now: Micros) -> Answer {
    let op = match item.op {
        Ask::Op(op) => op,
        Ask::Undo(hits, _) => Op::GiveBack(hits.into()),
    };
    Ok(item.plan.charge_hashed(state, now, op, item.hold).judged)
}

fn read(kind: Kind, item: &Item, reader: &mut Reader<'_>, now: Micros) -> Result<State, Failed> {
    let failed = |code: u64| match code {
        1 => Failed::WrongType,
        2 => Failed::Corrupt,
        3 => Failed::OutOfMemory,
        4 => Failed::ReadOnly,
        _ => Failed::Unavailable,
    };
    let state = match kind {
        Kind::Counter => {
            let number = reader.wide().ok_or(Failed::Corrupt)?;
            if number >= 1 << 54 {
                return Err(failed((number - (1 << 54)) / 4));
            }
            item.plan.read_counter(number, now, item.in_key)
        }
        Kind::Charge(_) => {
            let len = reader.short().ok_or(Failed::Corrupt)?;
            if len >= u32::MAX - 15 {
                return Err(failed((len - (u32::MAX - 15)).into()));
            }
            item.plan.read_state(len, reader, now, item.in_key)
        }
    };
    state.ok_or(Failed::Corrupt)
}

/// An entry of the script of counters.
fn write_counter(item: &Item, out: &mut Vec<u8>) {
    let Some((limit, window)) = item.plan.counter() else { return };
    put(out, if item.in_key { 0 } else { window.period });
    let (op, hits) = match item.op {
        Ask::Op(Op::Take(0)) => (0, 0),
        Ask::Op(Op::Take(hits)) => (if limit.charge_denied { 1 } else { 2 }, hits),
        Ask::Op(Op::GiveBack(hits)) => (3, hits),
        Ask::Undo(hits, _) => (4, hits.into()),
    };
    out.push(op);
    if item.in_key {
        put(out, window.period / 1_000);
    }
    if op > 0 {
        put(out, hits.min(u32::MAX.into()));
    }
    match item.op {
        Ask::Undo(_, taken) => put(out, taken),
        _ if op == 2 => {
            out.extend_from_slice(&1_u32.to_le_bytes());
            out.extend_from_slice(&window.n.to_le_bytes());
        }
        _ => {}
    }
}

/// Adds a charge to an entry of counters, whose numbers are `body`.
fn merge_counters(items: &[Item], item: &Item, body: &mut [u8]) -> bool {
    let Some((limit, window)) = item.plan.counter() else { return false };
    let Some(Ask::Op(last)) = items.last().map(|item| item.op) else { return false };
    let at = if item.in_key { 15 } else { 8 };
    match (body[7], item.op) {
        // A look beside hits that are all counted.
        (1, Ask::Op(Op::Take(0))) | (0, Ask::Op(Op::Take(0))) => true,
        (1, Ask::Op(Op::Take(hits))) if limit.charge_denied => {
            let mut sum = [0; 8];
            sum[..7].copy_from_slice(&body[at..at + 7]);
            let sum = u64::from_le_bytes(sum) + hits.min(u32::MAX.into());
            // The count saturates there.
            let sum = if item.in_key { sum.min(1 << 51) } else { sum.min(u32::MAX.into()) };
            body[at..at + 7].copy_from_slice(&sum.to_le_bytes()[..7]);
            true
        }
        (2, op) if op == Ask::Op(last) && !limit.charge_denied => {
            let n = &body[at + 11..at + 15];
            if n != window.n.to_le_bytes() {
                return false;
            }
            let times = &mut body[at + 7..at + 11];
            let more = u32::from_le_bytes((&*times).try_into().unwrap_or_default()) + 1;
            times.copy_from_slice(&more.to_le_bytes());
            true
        }
        _ => false,
    }
}

/// A run of the other script.
fn write_run(item: &Item, out: &mut Vec<u8>) {
    let (op, hits) = match item.op {
        Ask::Op(Op::Take(hits)) => (0, hits),
        Ask::Op(Op::GiveBack(hits)) => (1, hits),
        Ask::Undo(hits, _) => (2, hits.into()),
    };
    out.push(op);
    out.extend_from_slice(&u32::try_from(hits).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
    if item.plan.hold_id().is_some() {
        out.extend_from_slice(&item.hold.to_le_bytes());
    }
    if let Ask::Undo(_, taken) = item.op {
        put(out, taken);
    }
}
