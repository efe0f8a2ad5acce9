//! Loads and rejections of rules: the newest as they are shown, and each as it happens, for operators who watch.

use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use tokio::sync::broadcast;

use super::changes::Changes;
use weir_rules::{Position, Problem, truncated};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub files: usize,
    pub domains: usize,
    pub rules: usize,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// What the rejection means, and the first error.
    pub text: String,
    /// The place of the first error.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub column: Option<u32>,
    pub errors: usize,
    /// Since when none have been valid.
    pub since: SystemTime,
}

impl Rejected {
    /// Returns whether the first error is the same.
    fn is_like(&self, other: &Rejected) -> bool {
        let place = |set: &Rejected| (set.file.clone(), set.line, set.column);
        self.text == other.text && place(self) == place(other)
    }

    /// Notes the errors of a set that is rejected `now`, after `before`. `message` says what the rejection means.
    pub(super) fn new(
        message: &str,
        first: Option<&Problem>,
        errors: usize,
        now: SystemTime,
        before: Option<&Rejected>,
    ) -> Rejected {
        let position = first.and_then(|first| first.position);
        Rejected {
            text: match first {
                Some(first) => format!("{message}: {}", first.message),
                None => message.to_owned(),
            },
            file: first.map(|first| first.file.clone()),
            line: position.and_then(Position::line),
            column: position.and_then(Position::column),
            errors,
            since: before.map_or(now, |before| before.since),
        }
    }
}

/// The active set, and the errors of a newer one.
#[derive(Clone, Debug, Default)]
pub struct LoadStatus {
    /// When the active rules were loaded, and their numbers.
    pub loaded: Option<(SystemTime, Summary)>,
    /// The warnings about the active rules, in full.
    pub warnings: Arc<str>,
    /// What the active rules changed; none for the first rules.
    pub changes: Option<Changes>,
    /// The newest set, if it was rejected.
    pub newest: Option<RejectedSet>,
    /// The active rules with the newest overlay and lists, if these were rejected.
    pub present: Option<RejectedSet>,
    /// The errors of the last set that was rejected.
    pub last_error: Option<Errors>,
}

/// When a set was rejected, and its errors in full.
pub type Errors = (SystemTime, Arc<str>);

#[derive(Clone, Debug)]
pub struct RejectedSet {
    pub shown: Rejected,
    pub errors: Errors,
}

impl LoadStatus {
    /// Returns what is rejected now: once, if both sets have the same error.
    pub fn rejected(&self) -> impl Iterator<Item = &RejectedSet> {
        let newest = self.newest.as_ref();
        let is_other =
            |set: &&RejectedSet| newest.is_none_or(|newest| !newest.shown.is_like(&set.shown));
        newest.into_iter().chain(self.present.as_ref().filter(is_other))
    }
}

/// Reports a load, or the errors of a rejection, to operators who watch.
pub(super) fn announce(
    reloads: &broadcast::Sender<Reload>,
    what: Reloaded,
    result: Result<(Summary, Option<Changes>), &str>,
) {
    if reloads.receiver_count() == 0 {
        return;
    }
    let ok = result.is_ok();
    let error = result.as_ref().err().map(|problems| truncated(*problems, MAX_ERROR_BYTES));
    let (summary, changes) = result.ok().unzip();
    let reload = Reload { what, ok, error, summary, changes: changes.flatten() };
    // The last watcher may have gone.
    let _ = reloads.send(reload);
}
