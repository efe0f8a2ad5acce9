//! The change log, in memory: the last changes by operators, of controls and rules, and denials. `/v1/audit`,
//! `/v1/history` and `/v1/status` return it.
//!
//! A change is JSON with its `number`, the time `at`, and the kind of `event`: `operator`, a change by an operator;
//! `control`, a control (a block, an allow or a limit) that changed on any weir replica; `denial`, a denied request;
//! `reload`, of rules; `store`, its connection; `emptied`, a Redis without its data; or `problems`. Values of keys in
//! `top.redact` are hashed before.
//!
//! **Bounded.** Of each kind the last ones are kept, and each has a bounded length.

mod recent;

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use self::recent::{Recent, bounded};
use weir_api::messages::AuditRecord;
use weir_controls::{ControlClock, time_text};
use weir_limit::Micros;
use weir_limiter::Denial;

const MAX_OPERATOR_CHANGES: usize = 1_000;

/// How many denials and how many other changes are kept. `/v1/history` shows as many changes by operators.
const MAX_OTHERS: usize = 200;

/// The kept units of JSON (see `recent`) of the newest denial of each key, half of them for one rule: 1 MiB.
const MAX_NEWEST: usize = (1 << 20) / recent::UNIT_BYTES;

/// The most changes that [`after`](ChangeLog::after) returns.
pub(super) const MAX_AFTER: usize = 100;

#[derive(Debug)]
pub struct ChangeLog {
    clock: ControlClock,
    state: Mutex<ChangeLogState>,
}

#[derive(Debug)]
struct ChangeLogState {
    /// The number of the newest change.
    newest: u64,
    operator: Recent,
    others: Recent,
    /// A sample.
    denials: Recent,
    newest_denials: Recent,
    /// Who wrote or deleted a control here last, by its id, until it is seen that the control has changed.
    writers: HashMap<String, String>,
}

impl ChangeLog {
    pub fn new(clock: ControlClock) -> ChangeLog {
        let state = ChangeLogState {
            newest: 0,
            operator: Recent::new(MAX_OPERATOR_CHANGES),
            others: Recent::new(MAX_OTHERS),
            denials: Recent::new(MAX_OTHERS),
            newest_denials: Recent::new(MAX_NEWEST),
            writers: HashMap::new(),
        };
        ChangeLog { clock, state: Mutex::new(state) }
    }

    /// Adds a change by an operator: who made it, from which address, and what was done to what.
    pub(super) fn add_operator_change(&self, who: &str, from: &str, action: &str, subject: &str) {
        let change = json!({ "who": who, "from": from, "action": action, "subject": subject });
        let mut state = self.state.lock();
        let (number, change) = state.next(self.clock.now(), "operator", change);
        state.operator.add(number, change);
    }

    pub(super) fn add_writer(&self, id: &str, who: &str) {
        let writers = &mut self.state.lock().writers;
        if writers.len() < MAX_OPERATOR_CHANGES {
            writers.insert(id.to_owned(), who.to_owned());
        }
    }

    /// Returns who has changed a control, once.
    pub(super) fn writer(&self, id: &str) -> Option<String> {
        self.state.lock().writers.remove(id)
    }

    /// Adds a change that is not one by an operator.
    pub(super) fn add(&self, event: &str, details: Value) {
        let mut state = self.state.lock();
        let (number, change) = state.next(self.clock.now(), event, details);
        state.others.add(number, change);
    }

    /// Adds a denial as the newest of its key, and to the sample if it is of that.
    pub(super) fn add_denial(&self, denial: &Denial) {
        let Denial { domain, entries, rule_id: rule, is_sampled, .. } = denial;
        let mut key = DefaultHasher::new();
        (domain, entries, rule).hash(&mut key);
        let mut state = self.state.lock();
        let (number, json) = state.next(self.clock.now(), "denial", json!(denial));
        let json = bounded(json);
        if *is_sampled {
            state.denials.add_to_sample(number, *rule, json.clone());
        }
        state.newest_denials.replace(number, key.finish(), *rule, json);
    }

    /// Returns the changes by operators, the newest first.
    pub(super) fn audit(&self) -> Vec<AuditRecord> {
        let changes: Vec<_> = self.state.lock().operator.after(0).collect();
        let records = changes.iter().rev().map(|(_, json)| serde_json::from_str(json));
        records.filter_map(Result::ok).collect()
    }

    /// Returns the last changes by operators and the other changes, the oldest first.
    pub(super) fn changes(&self) -> Vec<Value> {
        let changes = {
            let state = self.state.lock();
            let operator: Vec<_> = state.operator.after(0).collect();
            let skipped = operator.len().saturating_sub(MAX_OTHERS);
            sorted(operator.into_iter().skip(skipped).chain(state.others.after(0)))
        };
        parsed(&changes)
    }

    /// Returns the newest denial of each key and the sample, the oldest first; those of the rule of an id if one is given.
    pub(super) fn denials(&self, rule: Option<u64>) -> Vec<Value> {
        let state = self.state.lock();
        // Some are in both.
        let denials: BTreeMap<u64, Arc<str>> =
            state.denials.list(rule).chain(state.newest_denials.list(rule)).collect();
        drop(state);
        parsed(&denials.into_values().collect::<Vec<_>>())
    }

    /// Returns the number of the newest change, and the last changes after a number, the oldest first.
    pub(super) fn after(&self, number: u64) -> (u64, Vec<Arc<str>>) {
        let state = self.state.lock();
        let ChangeLogState { newest, operator, others, denials, .. } = &*state;
        let all = [operator, others, denials].into_iter().flat_map(|recent| recent.after(number));
        let mut changes = sorted(all);
        changes.drain(..changes.len().saturating_sub(MAX_AFTER));
        (*newest, changes)
    }
}

impl ChangeLogState {
    /// Returns the number of a new change, and the change. Numbers are times in microseconds that are made
    /// unique, so that those of a restarted process are greater, too.
    fn next(&mut self, at: Micros, event: &str, mut change: Value) -> (u64, Value) {
        self.newest = at.max(self.newest + 1);
        change["event"] = event.into();
        change["number"] = self.newest.into();
        change["at"] = time_text(at).into();
        (self.newest, change)
    }
}

fn sorted(changes: impl Iterator<Item = (u64, Arc<str>)>) -> Vec<Arc<str>> {
    let mut changes: Vec<_> = changes.collect();
    changes.sort_unstable_by_key(|(number, _)| *number);
    changes.into_iter().map(|(_, json)| json).collect()
}

fn parsed(changes: &[Arc<str>]) -> Vec<Value> {
    changes.iter().filter_map(|json| serde_json::from_str(json).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_common::clock::ManualClock;
    use weir_limit::SECOND;

    const NOW: Micros = 1_700_000_000 * SECOND;

    fn log() -> (ChangeLog, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(NOW));
        (ChangeLog::new(ControlClock::new(clock.clone())), clock)
    }

    fn put(log: &ChangeLog, subject: &str) {
        log.add_operator_change("ann", "127.0.0.1:5", "put control", subject);
    }

    /// Returns a member of each change.
    fn members(changes: &[Value], name: &str) -> Vec<Value> {
        changes.iter().map(|change| change[name].clone()).collect()
    }

    #[test]
    fn the_last_changes_by_operators_are_kept() {
        let (log, _) = log();
        log.add("reload", json!({ "ok": true }));
        for i in 0..=MAX_OPERATOR_CHANGES {
            put(&log, &i.to_string());
        }
        let records = log.audit();
        assert_eq!(records.len(), MAX_OPERATOR_CHANGES);
        let wanted = AuditRecord {
            at: "2023-11-14T22:13:20Z".to_owned(),
            who: "ann".to_owned(),
            from: "127.0.0.1:5".to_owned(),
            action: "put control".to_owned(),
            subject: MAX_OPERATOR_CHANGES.to_string(),
        };
        assert_eq!(records[0], wanted);
        assert_eq!(records[MAX_OPERATOR_CHANGES - 1].subject, "1");
        // They leave other changes.
        log.add("store", json!({ "up": false }));
        let changes = log.changes();
        assert_eq!(changes.len(), MAX_OTHERS + 2);
        let events = members(&changes, "event");
        assert_eq!(
            (&events[0], &events[1], &events[MAX_OTHERS + 1]),
            (&json!("reload"), &json!("operator"), &json!("store"))
        );
        assert!(members(&changes, "number").is_sorted_by_key(|number| number.as_u64()));
    }

    #[test]
    fn changes_after_a_number_are_found() {
        let (log, clock) = log();
        log.add("reload", json!({}));
        let (first, changes) = log.after(0);
        assert_eq!((first, changes.len()), (NOW, 1));
        put(&log, "x");
        clock.advance(5);
        log.add_denial(&Denial { is_sampled: true, ..Denial::default() });
        let (newest, changes) = log.after(first);
        assert_eq!(newest, NOW + 5);
        assert_eq!(members(&parsed(&changes), "event"), ["operator", "denial"]);
        assert_eq!(log.after(newest), (newest, Vec::new()));
        (0..1_000).for_each(|_| put(&log, "x"));
        assert_eq!(log.after(first).1.len(), MAX_AFTER);
    }
}
