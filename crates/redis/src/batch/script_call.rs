//! One call of a Lua script: its arguments, with an entry for each key that it charges, and answers from its reply.

use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::encode::{add_one, counter_op, merge_counters, write_counter, write_run, write_times};
use crate::codec::PlanCodec;
use crate::codec::format::{Reader, put};
use crate::codec::numbers::{QUOTA_PASSES, TOGETHER, counter_failure, failure, role};
use crate::codec::reservation::read_reservation;
use crate::counter::{OpenWindows, increment_hits, lone_window, read_counter};
use crate::key::holds_key;
use crate::pending_charge::{Decided, Group, PendingCharge, fail_all};
use crate::refusal::store_error;
use crate::script::ScriptKind;
use weir_limit::{Micros, Op, Plan, Reservation, State};
use weir_store::{BatchDenials, StoreError};

/// The time for the scripts of one batch, and where they run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchContext {
    /// This process's time if limits go by its clock; else 0, and the scripts read the server's.
    pub now: Micros,
    /// This process's time in any case.
    pub wall: Micros,
    /// Milliseconds to keep states for longer than they need.
    pub slack: u32,
    pub is_proxy: bool,
}

#[derive(Debug)]
pub(crate) struct ScriptCall {
    pub kind: ScriptKind,
    pub asking: bool,
    /// The server lacks the script, or may lack it: the call is sent with its text.
    pub script_missing: bool,
    args: Vec<u8>,
    entries: Vec<KeyCharges>,
    /// The rules of the entries, which name them by position.
    rules: Vec<Arc<Plan>>,
    /// The entries as arguments.
    body: Vec<u8>,
    /// The head of the last row, which its entries share: a rule, or a period and what to do. Its length follows.
    row: Range<usize>,
    pub(super) group: Option<Group>,
}

/// Charges of one key that the script makes as one.
#[derive(Debug)]
struct KeyCharges {
    charges: SmallVec<[PendingCharge; 1]>,
    /// The range of the entry in the body.
    range: Range<usize>,
    /// Where in the body the number of its runs is, or for counters its own numbers start.
    runs: usize,
    hash: u64,
}

impl KeyCharges {
    fn has_holds_key(&self) -> bool {
        self.charges[0].plan.hold_id().is_some()
    }

    fn more_keys(&self) -> usize {
        usize::from(self.has_holds_key()) + usize::from(self.charges[0].record.is_some())
    }

    /// Returns the end of the window in which the next hits of this key may go without a script.
    fn open_until(&self, now: Micros) -> Option<Micros> {
        let (_, window) = lone_window(&self.charges[0].plan)?;
        let takes =
            self.charges.iter().any(|charge| increment_hits(charge).is_some_and(|hits| hits > 0));
        takes.then(|| now - now % window.period + window.period)
    }
}

impl ScriptCall {
    pub(super) fn new(kind: ScriptKind, asking: bool, group: Option<Group>) -> ScriptCall {
        let (script_missing, args, entries, rules, body, row) = Default::default();
        ScriptCall { kind, asking, script_missing, args, entries, rules, body, row, group }
    }

    pub(super) fn push(&mut self, charge: PendingCharge, hash: u64) {
        let from = self.body.len();
        let mut runs = 0;
        match self.kind {
            ScriptKind::Counter => {
                let window = lone_window(&charge.plan).map(|(_, window)| window);
                if let Some((window, op)) = window.zip(counter_op(&charge)) {
                    put(&mut self.body, window.period);
                    self.body.push(op);
                    self.end_row_head(from);
                    runs = self.body.len();
                    write_counter(&charge, op, window.n, &mut self.body);
                }
            }
            ScriptKind::Gcra | ScriptKind::Windows => {
                let rule = self.rule(&charge.plan);
                self.body.push(rule as u8);
                self.end_row_head(from);
                write_times(charge.op, &mut self.body);
            }
            ScriptKind::Charge(_) | ScriptKind::Reserve(_) => {
                let rule = self.rule(&charge.plan);
                self.body.extend_from_slice(&(rule as u32).to_le_bytes());
                self.body.push(role(charge.role, charge.denial_where_failed));
                runs = self.body.len();
                self.body.push(1);
                write_run(&charge, &mut self.body);
            }
        }
        let range = from..self.body.len();
        self.entries.push(KeyCharges { charges: smallvec![charge], range, runs, hash });
    }

    pub(super) fn key(&self, entry: usize) -> &[u8] {
        &self.entries[entry].charges[0].key
    }

    /// Returns the number of entries, and of rules.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.rules.len())
    }

    /// Returns the position of a rule in this call; adds it where it is new.
    fn rule(&mut self, plan: &Arc<Plan>) -> usize {
        let same = |rule: &Arc<Plan>| Arc::ptr_eq(rule, plan);
        self.rules.iter().position(same).unwrap_or_else(|| {
            self.rules.push(plan.clone());
            self.rules.len() - 1
        })
    }

    /// Starts a row whose head was appended from `start` on. If the last row has the same head, removes it, and counts
    /// an entry to that row.
    fn end_row_head(&mut self, start: usize) {
        let (head, length) = (start..self.body.len(), self.row.end);
        if self.body[self.row.clone()] == self.body[head.clone()] && self.body[length] < u8::MAX {
            self.body.truncate(start);
            self.body[length] += 1;
        } else {
            self.row = head;
            self.body.push(1);
        }
    }

    /// Adds a charge to the last entry of its key, where the result is the same; else returns it.
    pub(super) fn merge(
        &mut self,
        entry: usize,
        charge: PendingCharge,
    ) -> Result<(), PendingCharge> {
        let is_last = entry + 1 == self.entries.len();
        let entry = &mut self.entries[entry];
        let Some(before) = entry.charges.last() else { return Err(charge) };
        let merges = |op| matches!(op, Op::Take(_) | Op::Refund(_));
        if !merges(before.op) || !merges(charge.op) {
            return Err(charge);
        }
        let merged = match self.kind {
            ScriptKind::Counter => {
                merge_counters(&entry.charges, &charge, &mut self.body[entry.runs..entry.range.end])
            }
            ScriptKind::Gcra | ScriptKind::Windows => {
                let same = before.op == charge.op && Arc::ptr_eq(&before.plan, &charge.plan);
                if same {
                    add_one(&mut self.body[entry.range.end - 4..entry.range.end]);
                }
                same
            }
            // Operations about reservations do not merge.
            ScriptKind::Charge(_) | ScriptKind::Reserve(_) => {
                let runs = self.body[entry.runs];
                if !PlanCodec(&charge.plan).merges() || !Arc::ptr_eq(&before.plan, &charge.plan) {
                    false
                } else if before.op == charge.op {
                    add_one(&mut self.body[entry.range.end - 4..entry.range.end]);
                    true
                } else if is_last && runs < 255 {
                    self.body[entry.runs] = runs + 1;
                    write_run(&charge, &mut self.body);
                    entry.range.end = self.body.len();
                    true
                } else {
                    false
                }
            }
        };
        if !merged {
            return Err(charge);
        }
        entry.charges.push(charge);
        Ok(())
    }

    pub(super) fn finish(&mut self, BatchContext { now, wall, slack, .. }: BatchContext) {
        put(&mut self.args, now);
        self.args.extend_from_slice(&slack.to_le_bytes());
        if let ScriptKind::Gcra | ScriptKind::Windows = self.kind {
            self.args.push(self.rules.len() as u8);
            self.rules.iter().for_each(|rule| PlanCodec(rule).write_numbers(&mut self.args));
        }
        if let ScriptKind::Charge(_) | ScriptKind::Reserve(_) = self.kind {
            self.args.extend_from_slice(&(self.rules.len() as u32).to_le_bytes());
            for rule in &self.rules {
                PlanCodec(rule).write_rule(wall, &mut self.args);
            }
            let quota_passes = |group: Group| if group.quota_passes { QUOTA_PASSES } else { 0 };
            let together = self.group.map_or(0, |group| TOGETHER | quota_passes(group));
            self.args.push(together);
        }
        self.args.append(&mut self.body);
    }

    /// Returns the command: `EVAL` with the script's text, or `EVALSHA` with its hash.
    pub fn command(&self, name: &str, script: &str) -> redis::Cmd {
        let mut command = redis::Cmd::with_capacity(
            self.entries.len() + 4,
            self.args.len() + self.entries.len() * 64,
        );
        let more: usize = self.entries.iter().map(KeyCharges::more_keys).sum();
        command.arg(name).arg(script).arg(self.entries.len() + more);
        for entry in &self.entries {
            let key = &entry.charges[0].key;
            command.arg(&**key);
            if entry.has_holds_key() {
                command.arg(holds_key(key));
            }
            if let Some(record) = &entry.charges[0].record {
                command.arg(&**record);
            }
        }
        command.arg(&self.args[..]);
        command
    }

    /// Returns how many charges it makes, and under how many keys.
    pub fn len(&self) -> (usize, usize) {
        (self.entries.iter().map(|entry| entry.charges.len()).sum(), self.entries.len())
    }

    pub fn into_charges(self) -> impl Iterator<Item = PendingCharge> {
        self.entries.into_iter().flat_map(|entry| entry.charges)
    }

    pub fn answer(self, reply: &[u8], open_windows: &mut OpenWindows) -> Answered {
        let mut reader = Reader(reply);
        let now = reader.wide();
        if let Some(now) = now {
            open_windows.set_time(now);
        }
        let (mut failed_entries, mut orphans, mut denials) =
            <(SmallVec<[_; 1]>, Vec<_>, BatchDenials)>::default();
        for entry in self.entries {
            let read = now
                .ok_or(StoreError::Corrupt)
                .and_then(|now| Ok((now, read(self.kind, &entry.charges[0], &mut reader, now)?)));
            match read {
                Ok((now, (mut state, reservation))) => {
                    if let Some(ends) = entry.open_until(now) {
                        open_windows.insert(entry.hash, ends);
                    }
                    for charge in entry.charges {
                        let Decided { allowed, returning } =
                            charge.decide(&mut state, reservation, now);
                        denials.add(charge.role, (!allowed).then_some(charge.role));
                        orphans.extend(returning);
                    }
                }
                Err(failed) => {
                    for charge in &entry.charges {
                        denials.add(charge.role, charge.denial_where_failed);
                    }
                    failed_entries.push((failed, entry.charges));
                }
            }
        }
        if self.group.is_some_and(|group| denials.deny(group.quota_passes)) {
            // Nothing was reserved.
            orphans.clear();
        }
        let message = String::from_utf8_lossy(reader.0);
        let message = message.trim_end();
        let fail = |(failed, charges): (StoreError, SmallVec<[PendingCharge; 1]>)| {
            let failed =
                if failed == StoreError::Unavailable { store_error(message) } else { failed };
            let key = charges.first().map(|charge| charge.key.clone()).unwrap_or_default();
            fail_all(charges, failed);
            (failed, key)
        };
        let failures = failed_entries.into_iter().map(fail).collect();
        Answered { failures, message: message.to_owned(), orphans }
    }
}

pub(crate) struct Answered {
    /// The errors of whole keys, each with its key.
    pub failures: SmallVec<[(StoreError, Box<[u8]>); 1]>,
    /// Redis's text of the first failure without a number of its own.
    pub message: String,
    /// Charges that return what was reserved for requests that were dropped meanwhile, and what was leased too late.
    pub orphans: Vec<PendingCharge>,
}

/// Reads the state of an entry's key, with what the id has reserved, or its error, from a reply.
fn read(
    kind: ScriptKind,
    charge: &PendingCharge,
    reader: &mut Reader<'_>,
    now: Micros,
) -> Result<(State, Option<Reservation>), StoreError> {
    let state = match kind {
        ScriptKind::Counter => {
            let number = reader.wide().ok_or(StoreError::Corrupt)?;
            if let Some(failure) = counter_failure(number) {
                return Err(failure);
            }
            read_counter(&charge.plan, number, now)
        }
        ScriptKind::Gcra | ScriptKind::Windows | ScriptKind::Charge(_) | ScriptKind::Reserve(_) => {
            let len = reader.short().ok_or(StoreError::Corrupt)?;
            if let Some(failure) = failure(len) {
                return Err(failure);
            }
            PlanCodec(&charge.plan).read_state(len, reader, now)
        }
    };
    let state = state.ok_or(StoreError::Corrupt)?;
    let reservation = match charge.record {
        Some(_) => read_reservation(reader).ok_or(StoreError::Corrupt)?,
        None => None,
    };
    Ok((state, reservation))
}
