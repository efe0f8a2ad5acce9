//! Lists of the top keys of all replicas of weir, through texts that each writes to Redis once a second.
//!
//! Each replica writes the first rows of its lists; only one that is asked reads those of the others, at most once
//! a second, and merges them with its own. Values that are to be hidden are hashed with the secret that replicas
//! share, so that they have the same hashes in all lists.
//!
//! The true count of a key is from `count - error` to `count`: what a replica does not list of a key is at most
//! its `unlisted`, which is added to both.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::list::{By, LimitUsage, Scope, TopList, TopQuery, TopRow, Window, order};
use super::redact::Redaction;
use weir_common::entry::OwnedEntry;
use weir_common::threads::run_blocking;
use weir_store::StoreError;
use weir_store::shared::{MAX_TEXT_BYTES, ReplicaTextError, ReplicaTexts};

/// How often lists are written, and how long those of others are used that were read.
const INTERVAL: Duration = Duration::from_secs(1);

/// The rows of each list that are written, if there is room.
const MAX_ROWS: usize = 100;

/// The version of the texts. A replica ignores those of other versions.
const VERSION: u32 = 1;

/// Why there are no lists of other replicas.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotShared {
    #[error("the lists of replicas are not shared")]
    Off,
    #[error("no lists are written to redis yet")]
    NotYet,
    #[error("redis refuses the lists of replicas")]
    Refused,
    #[error("the lists of replicas cannot be read: {0}")]
    Store(#[from] StoreError),
}

type Read = Result<Arc<Others>, NotShared>;

/// What is known about the lists of other replicas.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Whether lists are written; none before the first are.
    written: parking_lot::Mutex<Option<Result<(), NotShared>>>,
    /// What was read last, and when.
    read: Mutex<Option<(Instant, Read)>>,
}

/// The lists of other replicas.
#[derive(Debug, Default)]
pub struct Others(Vec<Shared>);

/// The lists of a replica.
#[derive(Debug, Serialize, Deserialize)]
struct Shared {
    version: u32,
    /// Identifies the secret of hashes.
    secret: String,
    keys: Vec<SharedKey>,
    lists: Vec<SharedList>,
}

/// A key, which several lists may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct SharedKey {
    #[serde(rename = "d")]
    domain: String,
    #[serde(rename = "e")]
    entries: Vec<(String, String)>,
    #[serde(rename = "r", default, skip_serializing_if = "String::is_empty")]
    rule: String,
    /// Identifies a key that is cut.
    #[serde(rename = "t", default, skip_serializing_if = "String::is_empty")]
    tag: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct SharedList {
    by: By,
    window: Window,
    seconds: u64,
    total: u64,
    unlisted: u64,
    /// The index of the key, count and error of each row.
    rows: Vec<(usize, u64, u64)>,
    /// The limits of rows that are near one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    near: Vec<LimitUsage>,
}

impl Share {
    /// Writes a secret, and the lists with it, once a second. Never ends.
    pub async fn publish(
        &self,
        texts: &dyn ReplicaTexts,
        redaction: &Redaction,
        text: impl FnOnce() -> (String, String) + Clone + Send + 'static,
    ) {
        // Else the first attempt would fail only because nothing is connected yet.
        texts.tried().await;
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Ok((secret, text)) = run_blocking(text.clone()).await else { continue };
            let error = match texts.publish(&secret, &text).await {
                Ok(shared) if shared == secret => {
                    *self.written.lock() = Some(Ok(()));
                    continue;
                }
                // The next text is made with it.
                Ok(shared) if redaction.adopt(&shared) => continue,
                Ok(_) => "the secret of the replicas is none".to_owned(),
                Err(ReplicaTextError::Store(_)) => continue,
                Err(ReplicaTextError::Refused(error)) => error,
            };
            *self.written.lock() = Some(Err(NotShared::Refused));
            tracing::warn!(error, "top keys are not shared any more: redis refuses the commands");
            return pending().await;
        }
    }

    /// Returns the lists of other replicas, which are up to a second old.
    pub async fn others(&self, texts: &dyn ReplicaTexts) -> Read {
        self.written.lock().clone().unwrap_or(Err(NotShared::NotYet))?;
        // Concurrent callers wait for one answer.
        let mut last = self.read.lock().await;
        if let Some((at, read)) = &*last
            && at.elapsed() < INTERVAL
        {
            return read.clone();
        }
        let read = match texts.others().await {
            Ok(texts) => Ok(Arc::new(Others::read(&texts))),
            Err(ReplicaTextError::Store(error)) => Err(error.into()),
            Err(ReplicaTextError::Refused(error)) => {
                tracing::debug!(error, "the lists of replicas cannot be read");
                Err(NotShared::Refused)
            }
        };
        *last = Some((Instant::now(), read.clone()));
        read
    }
}

impl Others {
    /// Reads texts; ignores what cannot be read.
    pub(super) fn read(texts: &[String]) -> Others {
        let texts = texts.iter().filter_map(|text| serde_json::from_str(text).ok());
        Others(texts.filter(|shared: &Shared| shared.version == VERSION).collect())
    }

    /// Returns one list of this replica, `own`, and of those with its secret.
    pub(super) fn merged(&self, own: TopList, secret: &str, query: &TopQuery<'_>) -> TopList {
        let others = self.0.iter().filter(|other| other.secret == secret);
        merge(own, others.filter_map(|other| other.list(query)), query)
    }
}

/// Returns the lists with the secret of an id as a text that is short enough.
pub(super) fn text(secret: &str, list_of: impl Fn(&TopQuery<'_>) -> TopList) -> String {
    let mut rows = MAX_ROWS;
    loop {
        let shared = Shared::of(secret, rows, &list_of);
        let text = serde_json::to_string(&shared).unwrap_or_default();
        if text.len() <= MAX_TEXT_BYTES || rows == 0 {
            return text;
        }
        rows /= 2;
    }
}

impl Shared {
    fn of(secret: &str, rows: usize, list_of: &impl Fn(&TopQuery<'_>) -> TopList) -> Shared {
        let (mut keys, mut index) = (Vec::new(), HashMap::new());
        let windows = [By::Hits, By::Denied, By::WouldBeDenied].into_iter();
        let lists = windows.flat_map(|by| Window::ALL.map(|window| (by, window)));
        let lists = lists.chain([(By::Near, Window::Start)]).map(|(by, window)| {
            let list = list_of(&TopQuery { window, limit: rows, ..TopQuery::new(by) });
            let mut key = |row: &TopRow| {
                let key = SharedKey::of(row);
                *index.entry(key.clone()).or_insert_with(|| {
                    keys.push(key);
                    keys.len() - 1
                })
            };
            SharedList {
                by,
                window: list.window,
                seconds: list.seconds,
                total: list.total,
                unlisted: list.unlisted.max(list.cut_off),
                rows: list.rows.iter().map(|row| (key(row), row.count, row.error)).collect(),
                near: list.rows.iter().filter_map(|row| row.near.clone()).collect(),
            }
        });
        let lists = lists.collect();
        Shared { version: VERSION, secret: secret.to_owned(), keys, lists }
    }

    /// Returns all rows of the list of a query, whatever the rows that it selects.
    fn list(&self, query: &TopQuery<'_>) -> Option<TopList> {
        let window = if query.by == By::Near { Window::Start } else { query.window };
        let list = self.lists.iter().find(|list| list.by == query.by && list.window == window)?;
        let row = |(at, (key, count, error)): (usize, &(usize, u64, u64))| {
            let near = list.near.get(at).cloned();
            // A count that another replica could not have is ignored.
            let is_whole = error <= count && near.is_some() == (query.by == By::Near);
            let key = self.keys.get(*key).filter(|_| is_whole)?;
            Some(key.row(*count, *error, near))
        };
        Some(TopList {
            by: list.by,
            window,
            scope: Scope::Here,
            replicas: 1,
            seconds: list.seconds,
            total: list.total,
            unlisted: list.unlisted,
            rows: list.rows.iter().enumerate().filter_map(row).collect(),
            cut_off: 0,
        })
    }
}

impl SharedKey {
    fn of(row: &TopRow) -> SharedKey {
        let entries = row.entries.iter().map(|entry| (entry.key.clone(), entry.value.clone()));
        SharedKey {
            domain: row.domain.clone(),
            entries: entries.collect(),
            rule: row.rule.clone().unwrap_or_default(),
            tag: row.tag.clone(),
        }
    }

    fn row(&self, count: u64, error: u64, near: Option<LimitUsage>) -> TopRow {
        let entries = self.entries.iter().cloned();
        TopRow {
            domain: self.domain.clone(),
            entries: entries.map(|(key, value)| OwnedEntry { key, value }).collect(),
            rule: Some(self.rule.clone()).filter(|rule| !rule.is_empty()),
            cut: !self.tag.is_empty(),
            count,
            error,
            banned_ms: None,
            near,
            tag: self.tag.clone(),
        }
    }
}

/// Merges the lists of replicas, each with all of its rows.
fn merge(own: TopList, others: impl Iterator<Item = TopList>, query: &TopQuery<'_>) -> TopList {
    let mut all = TopList { scope: Scope::All, replicas: 0, rows: Vec::new(), ..own };
    (all.total, all.unlisted) = (0, 0);
    let mut index = HashMap::new();
    // Of each row, the last replica that lists it, and the sum of what those that do may omit of others.
    let mut listed: Vec<(usize, u64)> = Vec::new();
    for list in std::iter::once(own).chain(others) {
        all.replicas += 1;
        all.seconds = all.seconds.max(list.seconds);
        all.total = all.total.saturating_add(list.total);
        all.unlisted = all.unlisted.saturating_add(list.unlisted);
        for row in list.rows {
            // What a row is the count of, in all replicas.
            let counted = (SharedKey::of(&row), row.near.as_ref().map(|near| near.limit.clone()));
            let at = *index.entry(counted).or_insert(all.rows.len());
            let Some(known) = all.rows.get_mut(at) else {
                all.rows.push(row);
                listed.push((all.replicas, list.unlisted));
                continue;
            };
            known.count = known.count.saturating_add(row.count);
            known.error = known.error.saturating_add(row.error);
            if let Some((last, sum)) = listed.get_mut(at)
                && *last != all.replicas
            {
                (*last, *sum) = (all.replicas, sum.saturating_add(list.unlisted));
            }
            // The one that resets later is of a later window, or of a later admission.
            let last =
                |near: &Option<LimitUsage>| near.as_ref().map(|usage| (usage.reset_ms, usage.used));
            if last(&row.near) > last(&known.near) {
                known.near = row.near;
            }
        }
    }
    for (row, (_, listed)) in all.rows.iter_mut().zip(listed) {
        let missing = all.unlisted.saturating_sub(listed);
        row.count = row.count.saturating_add(missing);
        row.error = row.error.saturating_add(missing);
    }
    all.rows.retain(|row| {
        query.domain.is_none_or(|domain| domain == row.domain)
            && query.rule.is_none_or(|rule| row.rule.as_deref() == Some(rule))
    });
    all.rows.sort_unstable_by(order);
    all.rows.truncate(query.limit);
    all
}
