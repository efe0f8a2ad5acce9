//! What is compared once a second, as changes.

use std::iter::zip;
use std::mem::replace;

use serde_json::{Value, json};

use crate::http::operators::control_changes::ControlChanges;
use crate::http::operators::problems::Problem;
use crate::http::operators::sources::Sources;
use crate::http::operators::store_state::StoreState;
use crate::http::operators::store_watch::Moment;
use weir_store::{Operations, Store};

/// Notices what has changed since it last looked.
#[derive(Debug, Default)]
pub(super) struct Observer {
    was_connected: Option<bool>,
    controls: ControlChanges,
    losses: u64,
    problems: Vec<Problem>,
}

impl Observer {
    /// Looks at the store and at the problems. Returns the kinds and the details of what has changed.
    pub fn observe<S: Store + Operations>(
        &mut self,
        sources: &Sources<S>,
    ) -> Vec<(&'static str, Value)> {
        let store = StoreState::read(sources.limiter.store());
        let now = Moment { elapsed: sources.started.elapsed(), at: sources.controls.now() };
        let share_error = sources.controls.share_error().map(|error| error.to_string());
        sources.watch.look(now, &store, share_error);
        let problems = sources.problems(&store);
        let mut changes = Vec::new();
        let is_connected = store.is_connected;
        if self.was_connected.replace(is_connected).is_some_and(|was| was != is_connected) {
            changes.push(("store", store_changed(&store)));
        }
        let (limiter, controls) = (&sources.limiter, &sources.controls);
        let is_shared = limiter.store().shared_table().is_some();
        let redaction = limiter.denials().redaction();
        let changed = self.controls.look(controls, is_shared, &sources.log, redaction);
        changes.extend(changed.into_iter().map(|details| ("control", details)));
        let losses = controls.table_losses();
        if losses > replace(&mut self.losses, losses) {
            changes.push(("emptied", json!({})));
        }
        let before = replace(&mut self.problems, problems);
        log_store_problem(&before, &self.problems);
        if !are_like(&before, &self.problems) {
            changes.push(("problems", json!({ "problems": self.problems })));
        }
        changes
    }
}

fn are_like(before: &[Problem], now: &[Problem]) -> bool {
    before.len() == now.len() && zip(before, now).all(|(before, now)| before.is_like(now))
}

/// Logs a problem of the store that is new, or another one, and its end.
fn log_store_problem(before: &[Problem], now: &[Problem]) {
    let find = |list: &'_ [Problem]| list.iter().find(|problem| problem.is_of_store()).cloned();
    match (find(before), find(now)) {
        (Some(before), Some(now)) if before.is_like(&now) => {}
        (_, Some(now)) => {
            let (problem, severity) = (now.text(), now.severity());
            tracing::warn!(problem, %severity, "store problem");
        }
        (Some(_), None) => tracing::info!("store problem is over"),
        (None, None) => {}
    }
}

fn store_changed(store: &StoreState) -> Value {
    let errors = store.status.backends.iter().filter_map(|backend| backend.down_because);
    let error = errors.map(|error| error.to_string()).next();
    json!({ "up": store.is_connected, "error": error.filter(|_| !store.is_connected) })
}
