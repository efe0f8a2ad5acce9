//! Denied requests as they happen, for operators who watch: a sample, with texts shortened and secret
//! values hashed.

use std::future::pending;
use std::iter::zip;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::log::{MAX_ENTRIES, shortened};
use super::lookup::Lookup;
use super::sample::Sample;
use super::{Request, Status};
use crate::controls::Effect;
use crate::top::Redaction;
use weir_common::entry::OwnedEntry;
use weir_limit::Micros;
use weir_store::Answer;

/// Denials that are shown per second at most.
const PER_SECOND: u32 = 20;

/// Denials that wait for a watcher; older ones are dropped.
const MAX_WAITING: usize = 64;

/// A denied request, as its first descriptor that is over a limit shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denial {
    pub domain: String,
    pub entries: Vec<OwnedEntry>,
    /// Whether texts that end in an ellipsis are shortened, or entries are missing.
    pub cut: bool,
    pub hits: u64,
    /// The path of the rule; none if there is none, and for a limit sent with the request.
    pub rule: Option<String>,
    /// The limit in words; none if a control blocked.
    pub limit: Option<String>,
    /// The id of the control that blocked, or that changed the limit.
    pub control: Option<String>,
    /// The wait until the hits are allowed; none if it is not known, or forever.
    pub retry_ms: Option<u64>,
    /// Denials that were omitted since the last one that was not.
    pub suppressed: u64,
}

/// Shows denials to watchers, if there are any.
#[derive(Debug)]
pub struct Denials {
    watchers: Arc<AtomicUsize>,
    sample: Sample,
    waiting: broadcast::Sender<Denial>,
    redaction: Arc<Redaction>,
}

/// Receives denials until it is dropped.
#[derive(Debug)]
pub struct DenialWatch {
    watchers: Arc<AtomicUsize>,
    waiting: broadcast::Receiver<Denial>,
}

impl Denials {
    pub(super) fn new(redaction: Arc<Redaction>) -> Denials {
        let (watchers, waiting) = (Arc::default(), broadcast::Sender::new(MAX_WAITING));
        Denials { watchers, sample: Sample::new(PER_SECOND), waiting, redaction }
    }

    /// Returns what receives the denials from now on.
    pub fn watch(&self) -> DenialWatch {
        self.watchers.fetch_add(1, Relaxed);
        DenialWatch { watchers: self.watchers.clone(), waiting: self.waiting.subscribe() }
    }

    /// Whether anyone watches.
    #[inline]
    pub(super) fn are_watched(&self) -> bool {
        self.watchers.load(Relaxed) > 0
    }

    /// Shows a denial, if the sample has room for it.
    #[cold]
    pub(super) fn add(
        &self,
        request: &Request<'_>,
        lookup: &Lookup<'_, '_>,
        answers: &[Answer],
        statuses: &[Status<'_>],
    ) {
        let Some(suppressed) = self.sample.pass() else { return };
        if let Some(denial) = self.denial(request, lookup, answers, statuses, suppressed) {
            // The last watcher may have gone.
            let _ = self.waiting.send(denial);
        }
    }

    fn denial(
        &self,
        request: &Request<'_>,
        lookup: &Lookup<'_, '_>,
        answers: &[Answer],
        statuses: &[Status<'_>],
        suppressed: u64,
    ) -> Option<Denial> {
        let mut unread = answers.iter();
        let decided = lookup.matched.iter().map(|matched| {
            let decision =
                matched.plan().and_then(|plan| Some((plan, unread.next()?.as_ref().ok()?)));
            (matched, decision)
        });
        let ((matched, decision), _) =
            zip(decided, statuses).find(|(_, status)| status.over_limit)?;

        let all = matched.descriptor.entries;
        let mut cut = all.len() > MAX_ENTRIES;
        let mut shorten = |text: &str| {
            let short = shortened(text);
            cut |= short != text;
            short
        };
        let domain = shorten(request.domain);
        let entry = |entry: &(&str, &str)| OwnedEntry {
            key: shorten(entry.0),
            value: shorten(&self.redaction.value(*entry, 0)),
        };
        let entries = all.iter().take(MAX_ENTRIES).map(entry).collect();
        let wait = match &matched.effect {
            Some(Effect::Block { wait, .. }) => *wait,
            _ => decision.and_then(|(_, decision)| decision.retry_after),
        };
        let limit = decision.and_then(|(plan, at)| plan.limits().get(usize::from(at.limit)));
        Some(Denial {
            domain,
            entries,
            cut,
            hits: matched.op.takes().unwrap_or(0),
            rule: matched.applies.rule().map(|rule| self.redaction.path(rule.path(), all, 0)),
            limit: limit.map(ToString::to_string),
            control: matched.effect.map(|effect| effect.control().id.clone()),
            retry_ms: wait.map(|wait: Micros| wait.div_ceil(1_000)),
            suppressed,
        })
    }
}

impl DenialWatch {
    /// Returns the next denial.
    pub async fn next(&mut self) -> Denial {
        loop {
            match self.waiting.recv().await {
                Ok(denial) => return denial,
                // It is a sample anyway.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => pending().await,
            }
        }
    }
}

impl Drop for DenialWatch {
    fn drop(&mut self) {
        self.watchers.fetch_sub(1, Relaxed);
    }
}
