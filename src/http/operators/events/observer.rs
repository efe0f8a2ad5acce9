//! What is compared once a second, as events.

use serde_json::{Value, json};

use super::EventSources;
use super::status::StoreState;
use weir_store::{Operations, Store};

/// Notices what has changed since it last looked.
#[derive(Debug, Default)]
pub(in crate::http::operators) struct Observer {
    was_connected: Option<bool>,
}

impl Observer {
    /// Reads the state of the store, and returns the names and the data of events about what has changed.
    pub fn observe<S: Store + Operations>(
        &mut self,
        sources: &EventSources<S>,
    ) -> (StoreState, Vec<(&'static str, Value)>) {
        let store = StoreState::read(sources.limiter.store());
        let mut events = Vec::new();
        let is_connected = store.is_connected;
        if self.was_connected.replace(is_connected).is_some_and(|was| was != is_connected) {
            events.push(("store", store_changed(&store)));
        }
        (store, events)
    }
}

fn store_changed(store: &StoreState) -> Value {
    let errors = store.status.backends.iter().filter_map(|backend| backend.down_because);
    let error = errors.map(|error| error.to_string()).next();
    json!({ "up": store.is_connected, "error": error.filter(|_| !store.is_connected) })
}
