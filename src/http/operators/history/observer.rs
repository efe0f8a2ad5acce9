//! What is compared once a second, as changes.

use std::iter::zip;
use std::mem::replace;

use serde_json::{Value, json};

use crate::http::operators::problems::Problem;
use crate::http::operators::sources::Sources;
use crate::http::operators::store_state::StoreState;
use weir_store::{Operations, Store};

/// Notices what has changed since it last looked.
#[derive(Debug, Default)]
pub(super) struct Observer {
    was_connected: Option<bool>,
    problems: Vec<Problem>,
}

impl Observer {
    /// Looks at the store and at the problems. Returns the kinds and the details of what has changed.
    pub fn observe<S: Store + Operations>(
        &mut self,
        sources: &Sources<S>,
    ) -> Vec<(&'static str, Value)> {
        let store = StoreState::read(sources.limiter.store());
        let problems = sources.problems(&store);
        let mut changes = Vec::new();
        let is_connected = store.is_connected;
        if self.was_connected.replace(is_connected).is_some_and(|was| was != is_connected) {
            changes.push(("store", store_changed(&store)));
        }
        let before = replace(&mut self.problems, problems);
        if !are_like(&before, &self.problems) {
            changes.push(("problems", json!({ "problems": self.problems })));
        }
        changes
    }
}

fn are_like(before: &[Problem], now: &[Problem]) -> bool {
    before.len() == now.len() && zip(before, now).all(|(before, now)| before.is_like(now))
}

fn store_changed(store: &StoreState) -> Value {
    let errors = store.status.backends.iter().filter_map(|backend| backend.down_because);
    let error = errors.map(|error| error.to_string()).next();
    json!({ "up": store.is_connected, "error": error.filter(|_| !store.is_connected) })
}
