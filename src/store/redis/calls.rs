//! What decisions ask for, made into as few commands as may be; and what is replied, made into
//! answers.
//!
//! Charges of one key that wait for the same trip become one entry of a call, and get the answers
//! they would have had one by one: the script tells the state as it was, and each charge is decided
//! again from there, by the same arithmetic.

mod load;
mod plain;
mod write;

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

pub(super) use self::load::{Load, Times, load};
pub(super) use self::plain::Plain;
use self::write::{
    add_one, counter_op, merge_counters, role, write_counter, write_run, write_times,
};
use super::codec::numbers::{QUOTA_PASSES, TOGETHER};
use super::codec::{Reader, counter_failure, failure, put};
use super::known::Known;
use super::reply::Reply;
use super::script::Kind;
use crate::limit::{Micros, Op, Plan, State};
use crate::store::{Answer, Role, StoreError};

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
    /// As whose denial it counts where it fails.
    pub denial_where_failed: Option<Role>,
    /// Charges with the same number are charged together.
    pub together: Option<Together>,
    /// The window is part of the key.
    pub in_key: bool,
    /// When it was asked, where the window is part of the key: it is decided as of then.
    pub at: Micros,
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
    /// Puts right what plain hits met; so many are to be taken off what is no state.
    Settle(u32),
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
    /// The server said that it does not know the script.
    pub unknown: bool,
    args: Vec<u8>,
    entries: Vec<Entry>,
    /// The rules told of, and where in the arguments their number is.
    rules: Vec<Arc<Plan>>,
    body: Vec<u8>,
    /// Where the number of entries is that are alike and come last, and what they are.
    alike: Option<(usize, (u64, u8))>,
    together: Option<Together>,
}

/// The charges of one key that are charged as one.
#[derive(Debug)]
struct Entry {
    items: SmallVec<[Item; 1]>,
    /// Where its runs, or its numbers, are in the arguments.
    last: Range<usize>,
    /// Where the number of its runs, or its own numbers, begin.
    runs: usize,
    /// The key's hash.
    hash: u64,
}

impl Entry {
    /// Whether it has a second key.
    fn goes_by_holds(&self) -> bool {
        self.items[0].plan.hold_id().is_some()
    }

    /// When the window ends that hits were charged in which may do without a script.
    fn window_ends(&self, now: Micros) -> Option<Micros> {
        let (_, window) = self.items[0].plan.counter()?;
        let takes = self.items.iter().any(|item| plain::hits(item).is_some_and(|hits| hits > 0));
        takes.then(|| now - now % window.period + window.period)
    }
}

impl Call {
    fn new(kind: Kind, asking: bool, together: Option<Together>) -> Call {
        Call {
            kind,
            asking,
            unknown: false,
            args: Vec::new(),
            entries: Vec::new(),
            rules: Vec::new(),
            body: Vec::new(),
            alike: None,
            together,
        }
    }

    fn push(&mut self, item: Item, hash: u64) {
        let from = self.body.len();
        let mut runs = 0;
        match self.kind {
            Kind::Counter => {
                if let Some((limit, window)) = item.plan.counter() {
                    let op = counter_op(&item.op, limit);
                    let period = if item.in_key { 0 } else { window.period };
                    // Periods may differ where the window is in the key.
                    let alike = (if item.in_key { window.period + 1 } else { period }, op);
                    if self.begin(alike) {
                        put(&mut self.body, period);
                        self.body.extend_from_slice(&[op, 1]);
                        self.alike = Some((self.body.len() - 1, alike));
                        if item.in_key {
                            put(&mut self.body, window.period / 1_000);
                        }
                    }
                    runs = self.body.len();
                    write_counter(&item, op, window.n, &mut self.body);
                }
            }
            Kind::Gcra | Kind::Windows => {
                let rule = self.rule(&item.plan);
                let alike = (rule as u64, 0);
                if self.begin(alike) {
                    self.body.extend_from_slice(&[rule as u8, 1]);
                    self.alike = Some((self.body.len() - 1, alike));
                }
                write_times(&item, &mut self.body);
            }
            Kind::Charge(_) => {
                let rule = self.rule(&item.plan);
                self.body.extend_from_slice(&(rule as u32).to_le_bytes());
                self.body.push(role(&item));
                runs = self.body.len();
                self.body.push(1);
                write_run(&item, &mut self.body);
            }
        }
        let last = from..self.body.len();
        let mut items = SmallVec::new();
        items.push(item);
        self.entries.push(Entry { items, last, runs, hash });
    }

    /// The number of a rule in this call.
    fn rule(&mut self, plan: &Arc<Plan>) -> usize {
        let same = |rule: &Arc<Plan>| Arc::ptr_eq(rule, plan);
        self.rules.iter().position(same).unwrap_or_else(|| {
            self.rules.push(plan.clone());
            self.rules.len() - 1
        })
    }

    /// Whether an entry begins a row of such that are alike; else it is counted to the last row.
    fn begin(&mut self, alike: (u64, u8)) -> bool {
        match self.alike {
            Some((at, last)) if last == alike && self.body[at] < u8::MAX => {
                self.body[at] += 1;
                false
            }
            _ => true,
        }
    }

    /// Charges `item` with the last entry of its key, where that comes to the same.
    fn merge(&mut self, entry: usize, item: Item) -> Result<(), Item> {
        let is_last = entry + 1 == self.entries.len();
        let entry = &mut self.entries[entry];
        let Some(before) = entry.items.last() else { return Err(item) };
        let merged = match self.kind {
            Kind::Counter => {
                merge_counters(&entry.items, &item, &mut self.body[entry.runs..entry.last.end])
            }
            Kind::Gcra | Kind::Windows => {
                let same = before.op == item.op && Arc::ptr_eq(&before.plan, &item.plan);
                if same {
                    add_one(&mut self.body[entry.last.end - 4..entry.last.end]);
                }
                same
            }
            Kind::Charge(_) => {
                let runs = self.body[entry.runs];
                if !item.plan.merges() || !Arc::ptr_eq(&before.plan, &item.plan) {
                    false
                } else if before.op == item.op && matches!(item.op, Ask::Op(_)) {
                    add_one(&mut self.body[entry.last.end - 4..entry.last.end]);
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
    fn finish(&mut self, Times { now, wall, slack }: Times) {
        // Where the window is in the key, so is the caller's time: nobody else's is asked for.
        let in_key = self.entries.iter().any(|entry| entry.items[0].in_key);
        let all_in_key = self.entries.iter().all(|entry| entry.items[0].in_key);
        put(&mut self.args, if all_in_key { wall } else { now });
        self.args.extend_from_slice(&slack.to_le_bytes());
        if let Kind::Gcra | Kind::Windows = self.kind {
            self.args.push(self.rules.len() as u8);
            self.rules.iter().for_each(|rule| rule.write_numbers(&mut self.args));
        }
        if let Kind::Charge(_) = self.kind {
            self.args.extend_from_slice(&(self.rules.len() as u32).to_le_bytes());
            for rule in &self.rules {
                rule.write_rule(wall, in_key, &mut self.args);
            }
            let quota_passes = |it: Together| if it.quota_passes { QUOTA_PASSES } else { 0 };
            let together = self.together.map_or(0, |it| TOGETHER | quota_passes(it));
            self.args.push(together);
        }
        self.args.append(&mut self.body);
    }

    /// The command that makes it.
    pub fn command(&self, name: &str, script: &str) -> redis::Cmd {
        let mut command = redis::Cmd::with_capacity(
            self.entries.len() + 4,
            self.args.len() + self.entries.len() * 64,
        );
        let holds = self.entries.iter().filter(|entry| entry.goes_by_holds()).count();
        command.arg(name).arg(script).arg(self.entries.len() + holds);
        for entry in &self.entries {
            let key = &entry.items[0].key;
            command.arg(&**key);
            if entry.goes_by_holds() {
                command.arg([&key[..], b":holds"].concat());
            }
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

    /// Answers every charge from what the script replied. The failures that were told of whole keys,
    /// and what Redis says of the first that it has no kind for.
    pub fn answer<'r>(self, reply: &'r [u8], known: &mut Known) -> (Failures, &'r [u8]) {
        let mut reader = Reader(reply);
        let now = reader.wide();
        if let Some(now) = now {
            known.heard(now);
        }
        let mut failures = SmallVec::new();
        for entry in self.entries {
            let now = now.map(|now| if entry.items[0].in_key { entry.items[0].at } else { now });
            let state = match now {
                Some(now) => read(self.kind, &entry.items[0], &mut reader, now),
                None => Err(StoreError::Corrupt),
            };
            match (state, now) {
                (Ok(mut state), Some(now)) => {
                    if let Some(ends) = entry.window_ends(now) {
                        known.saw(entry.hash, ends);
                    }
                    for item in entry.items {
                        item.reply.set(item.index, judge(&item, &mut state, now), now);
                    }
                }
                (state, _) => {
                    let failed = state.err().unwrap_or(StoreError::Corrupt);
                    failures.push((failed, entry.items[0].key.clone()));
                    for item in entry.items {
                        item.reply.set(item.index, Err(failed), 0);
                    }
                }
            }
        }
        (failures, reader.0)
    }
}

/// Failures of whole keys, each with its key.
type Failures = SmallVec<[(StoreError, Box<[u8]>); 1]>;

/// Judges one charge from the state before it, and charges it.
fn judge(item: &Item, state: &mut State, now: Micros) -> Answer {
    let op = match item.op {
        Ask::Op(op) => op,
        Ask::Undo(hits, _) => Op::GiveBack(hits.into()),
        Ask::Settle(_) => Op::Take(0),
    };
    Ok(item.plan.charge_hashed(state, now, op, item.hold).decision)
}

fn read(
    kind: Kind,
    item: &Item,
    reader: &mut Reader<'_>,
    now: Micros,
) -> Result<State, StoreError> {
    let state = match kind {
        Kind::Counter => {
            let number = reader.wide().ok_or(StoreError::Corrupt)?;
            if let Some(failure) = counter_failure(number) {
                return Err(failure);
            }
            item.plan.read_counter(number, now, item.in_key)
        }
        Kind::Gcra | Kind::Windows | Kind::Charge(_) => {
            let len = reader.short().ok_or(StoreError::Corrupt)?;
            if let Some(failure) = failure(len) {
                return Err(failure);
            }
            item.plan.read_state(len, reader, now, item.in_key)
        }
    };
    state.ok_or(StoreError::Corrupt)
}
