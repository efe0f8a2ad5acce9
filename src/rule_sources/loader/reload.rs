//! Loads and rejections of rules as they happen, for operators who watch.

use serde::Serialize;
use tokio::sync::broadcast;

use super::{Changes, Loader, Summary};
use weir_rules::truncate;

/// Reloads that wait for a watcher; older ones are dropped.
pub(super) const MAX_WAITING: usize = 16;

/// The longest text of errors, in bytes.
const MAX_ERROR_BYTES: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reloaded {
    /// Rules, also if only their overlay has changed.
    Rules,
    /// An overlay, which is reported only if it is rejected.
    Overlay,
}

/// Rules or an overlay that were loaded or rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reload {
    pub what: Reloaded,
    pub ok: bool,
    /// The errors, if it was rejected; a long text is cut.
    pub error: Option<String>,
    /// The numbers of the active rules, if it was not.
    pub summary: Option<Summary>,
    /// What the active rules changed; none if it was rejected, and for the first rules.
    pub changes: Option<Changes>,
}

impl Loader {
    pub fn watch(&self) -> broadcast::Receiver<Reload> {
        self.reloads.subscribe()
    }

    /// Reports a load, or the errors of a rejection.
    pub(super) fn announce(
        &self,
        what: Reloaded,
        result: Result<(Summary, Option<Changes>), &str>,
    ) {
        if self.reloads.receiver_count() == 0 {
            return;
        }
        let (ok, error, loaded) = match result {
            Ok(loaded) => (true, None, Some(loaded)),
            Err(problems) => {
                let mut error = problems.to_owned();
                truncate(&mut error, MAX_ERROR_BYTES);
                (false, Some(error), None)
            }
        };
        let (summary, changes) = loaded.unzip();
        let reload = Reload { what, ok, error, summary, changes: changes.flatten() };
        // The last watcher may have gone.
        let _ = self.reloads.send(reload);
    }
}
