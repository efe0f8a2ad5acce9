//! What is compared once a second, as events.

use std::iter::zip;

use serde_json::{Value, json};

use super::{EventSources, Problem};
use crate::http::operators::store_state::StoreState;
use weir_store::{Operations, Store};

/// Notices what has changed since it last looked.
#[derive(Debug, Default)]
pub(in crate::http::operators) struct Observer {
    was_connected: Option<bool>,
    problems: Option<Vec<Problem>>,
}

/// What an [`Observer`] has seen.
pub(in crate::http::operators) struct Observed {
    pub store: StoreState,
    pub problems: Vec<Problem>,
    /// The names and the data of events about what has changed.
    pub events: Vec<(&'static str, Value)>,
}

impl Observer {
    /// Returns an observer that last saw no problems.
    pub fn without_problems() -> Observer {
        Observer { was_connected: None, problems: Some(Vec::new()) }
    }

    /// Reads the state of the store, and looks for problems.
    pub fn observe<S: Store + Operations>(&mut self, sources: &EventSources<S>) -> Observed {
        let store = StoreState::read(sources.limiter.store());
        let problems = sources.problems(&store);
        let mut events = Vec::new();
        let is_connected = store.is_connected;
        if self.was_connected.replace(is_connected).is_some_and(|was| was != is_connected) {
            events.push(("store", store_changed(&store)));
        }
        let before = self.problems.replace(problems.clone());
        if before.is_some_and(|before| !are_like(&before, &problems)) {
            events.push(("problems", json!({ "problems": problems })));
        }
        Observed { store, problems, events }
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
