//! What changes between two statuses, as events.

use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use crate::loader::Reload;

/// Receives changes.
pub(in crate::http::operators) struct Changes {
    pub(super) reloads: broadcast::Receiver<Reload>,
    pub(super) controls: watch::Receiver<u64>,
}

impl Changes {
    /// Returns the name and the data of the next event.
    pub async fn next(&mut self) -> (&'static str, Value) {
        tokio::select! {
            Ok(()) = self.controls.changed() => ("controls", json!({})),
            // The next status shows what those have done that were missed, if any were.
            Ok(reload) = self.reloads.recv() => ("reload", json!(reload)),
            // The process ends.
            else => std::future::pending().await,
        }
    }
}
