//! Notices which controls (blocks, allows and limits that operators set at run time) changed on any replica since the
//! last call. `history::recorder` adds them to the change log.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::change_log::ChangeLog;
use weir_controls::{Control, Controls, FirstRead};
use weir_top::Redaction;

/// The most changes that one call returns. For more it returns only their number.
const MAX_LISTED: usize = 20;

#[derive(Debug, Default)]
pub(super) struct ControlChanges {
    version: u64,
    /// The controls by their ids; none before those of other replicas are read.
    known: Option<HashMap<String, Arc<Control>>>,
}

impl ControlChanges {
    /// Returns the details of each change, with who made it if the control or the log names them.
    pub fn look(
        &mut self,
        controls: &Controls,
        is_shared: bool,
        log: &ChangeLog,
        redaction: &Redaction,
    ) -> Vec<Value> {
        let version = *controls.subscribe().borrow();
        let is_read = !is_shared || *controls.first_read().borrow() == FirstRead::Done;
        if self.known.is_some() && version == self.version || !is_read {
            return Vec::new();
        }
        self.version = version;
        let now = controls.now();
        let list = controls.list().into_iter().map(|control| (control.id.clone(), control));
        let after: HashMap<_, _> = list.collect();
        let Some(before) = self.known.replace(after) else { return Vec::new() };
        let after = self.known.as_ref().unwrap_or(&before);
        let time = |control: Option<&Arc<Control>>| control.map(|control| control.at);
        let mut changed: Vec<_> = after
            .iter()
            .map(|(id, control)| (id, before.get(id), Some(control)))
            .chain(before.iter().map(|(id, control)| (id, Some(control), after.get(id))))
            .filter(|(_, before, after)| time(*before) != time(*after))
            .collect();
        changed.sort_by_key(|(id, before, after)| (time(*after).max(time(*before)), *id));
        changed.dedup_by_key(|(id, ..)| *id);
        if changed.len() > MAX_LISTED {
            return vec![json!({ "change": "changed", "count": changed.len() })];
        }
        let shown = |control: &Arc<Control>| redacted(control, redaction);
        let details = changed.into_iter().map(|(id, before, after)| {
            let change = match (before, after) {
                (None, _) => "added",
                (Some(_), Some(_)) => "changed",
                (Some(before), None) if before.until.is_some_and(|until| until <= now) => "ended",
                (Some(_), None) => "removed",
            };
            let named = after.map(|control| control.by.clone()).filter(|by| !by.is_empty());
            let who = named.or_else(|| log.writer(id));
            json!({
                "id": id, "change": change, "who": who,
                "before": before.map(shown), "after": after.map(shown),
            })
        });
        details.collect()
    }
}

/// Returns a control with hashes in place of secret values.
pub(super) fn redacted(control: &Control, redaction: &Redaction) -> Control {
    let mut shown = control.clone();
    for entry in shown.entries.iter_mut().chain(&mut shown.except) {
        entry.value = redaction.value((&entry.key, &entry.value), 0);
    }
    shown
}
