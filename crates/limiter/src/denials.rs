//! Passes denied requests, as they happen, to what shows them to operators: a sample, and the first of each key in a
//! second, with texts shortened and secret values hashed. A control is a block or limit that an operator has set.

use std::future::pending;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter::zip;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::decision::{Answered, Decided, Status};
use crate::log::{MAX_ENTRIES, shortened};
use crate::lookup::Matched;
use weir_common::entry::{Entry, OwnedEntry};
use weir_common::failure::OnStoreFailure;
use weir_controls::Effect;
use weir_limit::{Micros, Source};
use weir_top::Redaction;

/// A descriptor of a denied request that is over its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The domain of the request.
    pub domain: String,
    /// The entries of the descriptor, with hashes in place of secret values.
    pub entries: Vec<OwnedEntry>,
    /// Whether texts that end in an ellipsis are shortened, or entries are missing.
    pub cut: bool,
    /// The hits that were denied.
    pub hits: u64,
    /// The path of the rule; none if there is none, and for a limit sent with the request.
    pub rule: Option<String>,
    /// The [`rule_id`] of that rule.
    #[serde(skip)]
    pub rule_id: Option<u64>,
    /// The limit in words; none if a control blocked.
    pub limit: Option<String>,
    /// The id of the control that blocked, or that changed the limit.
    pub control: Option<String>,
    /// The wait until the hits are allowed; none if it is not known, or forever.
    pub retry_ms: Option<u64>,
    /// Whether a ban denied, or began: the wait is that until it ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub banned: bool,
    /// The policy that denied because the store failed; none if it did not, empty if it is that of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Denials that were omitted since the last one of the sample, if the receiver counts them.
    pub suppressed: u64,
    /// Whether it is of the sample.
    #[serde(skip)]
    pub is_sampled: bool,
}

/// Returns what identifies a rule in this process, also where the path that is shown has hashes.
pub fn rule_id(domain: &str, path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (domain, path).hash(&mut hasher);
    hasher.finish()
}

/// The most descriptors of a request that are shown.
const MAX_DESCRIPTORS: usize = 4;

/// The most denials that wait for the receiver.
const MAX_WAITING: usize = 256;

/// Shows denials, if any are wanted.
#[derive(Debug)]
pub struct DenialFeed {
    /// Whether a denial is wanted. A decision looks at this alone.
    is_wanted: Arc<AtomicBool>,
    waiting: broadcast::Sender<Denial>,
    redaction: Arc<Redaction>,
}

/// Receives the denials that it asks for, and those that are news of their key: others pay nothing for it. There is one
/// at a time.
#[derive(Debug)]
pub struct DenialSample {
    is_wanted: Arc<AtomicBool>,
    waiting: broadcast::Receiver<Denial>,
}

impl DenialFeed {
    pub(super) fn new(redaction: Arc<Redaction>) -> DenialFeed {
        DenialFeed {
            is_wanted: Arc::default(),
            waiting: broadcast::Sender::new(MAX_WAITING),
            redaction,
        }
    }

    /// What is shown in place of secret values.
    pub fn redaction(&self) -> &Arc<Redaction> {
        &self.redaction
    }

    /// Returns entries as denials show them, and whether a text is shortened or entries are missing.
    pub(super) fn shown(&self, entries: &[Entry<'_>]) -> (Vec<OwnedEntry>, bool) {
        let mut cut = entries.len() > MAX_ENTRIES;
        let mut shorten = |text: &str| {
            let short = shortened(text);
            cut |= short != text;
            short
        };
        let entry = |entry: &Entry<'_>| OwnedEntry {
            key: shorten(entry.0),
            value: shorten(&self.redaction.value(*entry, 0)),
        };
        (entries.iter().take(MAX_ENTRIES).map(entry).collect(), cut)
    }

    /// Returns what receives the denials that it asks for.
    pub fn sample(&self) -> DenialSample {
        DenialSample { is_wanted: self.is_wanted.clone(), waiting: self.waiting.subscribe() }
    }

    #[inline]
    pub(super) fn are_wanted(&self) -> bool {
        self.is_wanted.load(Relaxed)
    }

    #[cold]
    pub(super) fn add(&self, answered: &Answered<'_, '_, '_>, statuses: &[Status<'_>]) {
        let mut is_sampled = self.is_wanted.swap(false, Relaxed);
        if self.waiting.receiver_count() == 0 {
            return;
        }
        let denied = zip(answered.descriptors(), statuses).filter(|(_, status)| status.over_limit);
        for ((matched, decided), _) in denied.take(MAX_DESCRIPTORS) {
            let denial = self.denial(answered, matched, decided);
            // The receiver may have gone.
            let _ = self.waiting.send(Denial { is_sampled, ..denial });
            // The sample is one of requests.
            is_sampled = false;
        }
    }

    fn denial(
        &self,
        answered: &Answered<'_, '_, '_>,
        matched: &Matched<'_, '_>,
        decided: Decided<'_>,
    ) -> Denial {
        let all = matched.descriptor.entries;
        let domain = shortened(answered.request.domain);
        let (entries, cut) = self.shown(all);
        let cut = cut || domain != answered.request.domain;
        let (limit, wait, banned) = match decided {
            Decided::Charged(charge, Ok(decision)) => {
                let limit = charge.plan.limits().get(usize::from(decision.limit));
                (limit, decision.retry_after, decision.banned)
            }
            _ => (None, None, false),
        };
        let wait = match &matched.effect {
            Some(Effect::Block { wait, .. }) => *wait,
            _ => wait,
        };
        let rule = matched.applies.rule();
        let is_by_policy = matches!(decided, Decided::Charged(_, Ok(decision)) if decision.source == Source::Degraded);
        let policy = answered.batch.on_failure.map_or("", OnStoreFailure::name);
        Denial {
            domain,
            entries,
            cut,
            hits: matched.op.asks().unwrap_or(0),
            rule: rule.map(|rule| self.redaction.path(rule.path(), all)),
            rule_id: rule.map(|rule| rule_id(rule.domain(), rule.path())),
            limit: limit.map(ToString::to_string),
            control: matched.effect.map(|effect| effect.control().id.clone()),
            retry_ms: wait.map(|wait: Micros| wait.div_ceil(1_000)),
            banned,
            policy: is_by_policy.then(|| policy.to_owned()),
            ..Denial::default()
        }
    }
}

impl DenialSample {
    /// Asks for the next denial, unless one is asked for already.
    pub fn ask(&mut self) {
        self.is_wanted.store(true, Relaxed);
    }

    /// Returns the denial that was asked for.
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

impl Drop for DenialSample {
    fn drop(&mut self) {
        self.is_wanted.store(false, Relaxed);
    }
}
