//! Finds the keys with the most hits or denials (would-be denials of shadow modes separately), near a limit, or banned.
//!
//! Each serving thread counts its decisions in sketches of its own: [`Top::record`] locks those of the current
//! thread. [`Top::list`] copies them one after the other, which locks each for some microseconds, and
//! merges the copies. Every decision is counted, without sampling, so that the reported errors are
//! certain.
//!
//! The sketches of hits and denials are those of a step of 20 seconds. [`Top::end_step`] moves them to the
//! history, of which lists of a minute, ten minutes, an hour and all time are made. It has to be called from time
//! to time, as [`Top::follow`] does; a late call makes windows longer, which their lists say.
//!
//! **Bounded.** Each of the four lists of a thread has `entries` rows, and the history of hits and denials five
//! eighths of that for each thread that counts; a row keeps up to 512 bytes of its key and 128 of the path of its
//! rule, and has some counters. Bans have `entries` rows for each thread, too.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod bans;
mod history;
mod key;
mod list;
mod merge;
mod near;
mod news;
mod redact;
mod share;
mod sketch;
#[cfg(test)]
mod tests;

pub use list::{By, Filter, LimitUsage, Scope, TopList, TopQuery, TopRow, Window};
pub use near::NearAdmission;
pub use redact::Redaction;
pub use share::{NotShared, Others};

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use self::bans::Bans;
use self::history::{History, Spans};
use self::merge::merge;
use self::near::{Near, NearKeys};
use self::news::News;
use self::share::Share;
use self::sketch::{KeyHasher, Sketch, Snapshot};
use weir_common::clock::Monotonic;
use weir_common::entry::Entry;
use weir_common::threads::{self, run_blocking};
use weir_limit::{Micros, SECOND};
use weir_store::shared::ReplicaTexts;

/// How often [`Top::follow`] looks whether a step is over.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// The cells of a generation of the history for each row of a thread.
const HISTORY_CELLS_PER_ROW: usize = 4;

/// The indices of what is counted in the sketches of a step.
const HITS: usize = 0;
const DENIED: usize = 1;
const WOULD_BE_DENIED: usize = 2;
const COUNTED: usize = 3;

#[derive(Clone, Debug)]
pub struct TopOptions {
    /// The rows of each list, on each thread; at least 1.
    pub entries: usize,
    /// Descriptor keys whose values are shown as hashes.
    pub redact: Vec<String>,
    pub threads: usize,
    pub share: bool,
}

/// Counts the hits, denials, near admissions and bans of keys.
pub struct Top {
    hasher: KeyHasher,
    /// The lists of each thread, by the thread's number.
    lists: Box<[Aligned]>,
    entries: usize,
    past: Mutex<Past>,
    redaction: Arc<Redaction>,
    /// A number of the current second, for [`News`].
    second: AtomicU32,
    /// The sharing of lists; none if lists are not shared.
    share: Option<Share>,
    clock: Arc<dyn Monotonic>,
    started: Micros,
}

/// What was counted before the current step. Locked before lists of threads are.
struct Past {
    spans: Spans,
    histories: [History; COUNTED],
}

/// Starts a cache line, so that threads do not slow each other down.
#[repr(align(64))]
struct Aligned {
    lists: Mutex<Lists>,
    /// Whether a denial was news since it was last asked for.
    has_news: AtomicBool,
}

/// The lists of one thread.
struct Lists {
    /// The hits of the current step.
    counted: [Sketch<()>; COUNTED],
    near: NearKeys,
    bans: Bans,
    news: News,
}

/// The decision on some hits of a key.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    pub domain: &'a str,
    pub entries: &'a [Entry<'a>],
    /// The path of the rule; empty if there is none.
    pub rule: &'a str,
    pub hits: u64,
    pub outcome: Outcome<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// Admitted, at or over `near_limit_ratio` of some limits.
    Admitted(&'a [NearAdmission<'a>]),
    Denied,
    /// Denied, by a ban or by that with which it begins; and the time until the ban ends.
    Banned {
        ends_in: Micros,
    },
    /// Admitted only because of a shadow mode, of a limit, a rule or all; near other limits.
    WouldBeDenied(&'a [NearAdmission<'a>]),
}

impl Top {
    pub fn new(options: TopOptions, clock: Arc<dyn Monotonic>) -> Top {
        let lists = || Lists {
            counted: std::array::from_fn(|_| Sketch::new(options.entries.max(1))),
            near: NearKeys::new(options.entries),
            bans: Bans::new(options.entries),
            news: News::default(),
        };
        let aligned = |_| Aligned { lists: Mutex::new(lists()), has_news: AtomicBool::new(false) };
        let now = clock.monotonic();
        Top {
            hasher: KeyHasher::default(),
            lists: (0..options.threads.max(1)).map(aligned).collect(),
            redaction: Arc::new(Redaction::new(options.redact)),
            entries: options.entries.max(1),
            past: Mutex::new(Past { spans: Spans::new(now), histories: Default::default() }),
            second: AtomicU32::new(0),
            share: options.share.then(Share::default),
            started: now,
            clock,
        }
    }

    /// What is shown in place of secret values.
    pub fn redaction(&self) -> &Arc<Redaction> {
        &self.redaction
    }

    /// Counts a decision. Decisions on no hits are not counted.
    #[inline]
    pub fn record(&self, recorded: &Recorded<'_>) {
        if recorded.hits > 0 {
            self.record_in(self.of_thread(), recorded);
        }
    }

    #[inline]
    fn of_thread(&self) -> &Aligned {
        &self.lists[threads::number() % self.lists.len()]
    }

    /// Returns whether this thread has recorded a denial that is news since the last call: the first of its key in a
    /// second.
    #[inline]
    pub fn take_news(&self) -> bool {
        let Aligned { has_news, .. } = self.of_thread();
        has_news.load(Relaxed) && has_news.swap(false, Relaxed)
    }

    #[inline]
    fn record_in(&self, aligned: &Aligned, recorded: &Recorded<'_>) {
        let lists = &mut *aligned.lists.lock();
        let Recorded { domain, entries, rule, hits, outcome } = *recorded;
        let key = self.hasher.key(domain, entries, rule);
        lists.counted[HITS].count(&key, hits);
        let near = match outcome {
            Outcome::Denied | Outcome::Banned { .. } => {
                lists.counted[DENIED].count(&key, hits);
                if let Outcome::Banned { ends_in } = outcome {
                    let now = self.clock.monotonic();
                    lists.bans.add(&key, hits, now, now.saturating_add(ends_in));
                }
                if lists.news.is_news(key.hash, rule, self.second.load(Relaxed)) {
                    aligned.has_news.store(true, Relaxed);
                }
                return;
            }
            Outcome::WouldBeDenied(near) => {
                lists.counted[WOULD_BE_DENIED].count(&key, hits);
                near
            }
            Outcome::Admitted(near) => near,
        };
        for near in near {
            lists.near.add(&key, hits, near, self.clock.monotonic());
        }
    }

    /// Takes hits that were returned from the use of a limit by a key: its domain, entries and rule. Below the
    /// threshold it is near its limit no longer.
    pub fn return_hits(
        &self,
        (domain, entries, rule): (&str, &[Entry<'_>], &str),
        limit: u64,
        hits: u64,
        near_threshold: f32,
    ) {
        let key = self.hasher.key(domain, entries, rule).of_limit(limit);
        for thread in &self.lists {
            thread.lists.lock().near.return_hits(&key, hits, near_threshold);
        }
    }

    /// Lists a key as banned no longer, whose ban an operator has ended.
    pub fn end_ban(&self, domain: &str, entries: &[Entry<'_>], rule: &str) {
        let (key, now) = (self.hasher.key(domain, entries, rule), self.clock.monotonic());
        for thread in &self.lists {
            thread.lists.lock().bans.remove(key.hash, now);
        }
    }

    /// Returns one list of all threads.
    pub fn list(&self, query: &TopQuery<'_>) -> TopList {
        let now = self.clock.monotonic();
        let seconds = now.saturating_sub(self.started) / SECOND;
        match query.by {
            By::Hits => self.counted(HITS, query),
            By::Denied => self.counted(DENIED, query),
            By::WouldBeDenied => self.counted(WOULD_BE_DENIED, query),
            By::Near => {
                let copies = self.lists.iter().map(|of| of.lists.lock().near.snapshot());
                let merged = merge(copies.collect(), Near::combine);
                TopList { seconds, ..list::by_fraction(merged, query, &self.redaction, now) }
            }
            By::Banned => {
                let copies = self.lists.iter().map(|of| of.lists.lock().bans.snapshot(now));
                let merged = merge(copies.collect(), |end: &mut u64, other| *end = other.max(*end));
                let ends_in = |_: u64, ends_in: &u64| Some(*ends_in);
                let list = list::by_count(merged, query, &self.redaction, ends_in);
                TopList { seconds, window: Window::Start, ..list }
            }
        }
    }

    fn counted(&self, list: usize, query: &TopQuery<'_>) -> TopList {
        // Held, so that no step ends meanwhile.
        let past = self.past.lock();
        let current = |of: &Aligned| of.lists.lock().counted[list].snapshot();
        let mut copies: Vec<Snapshot<()>> = self.lists.iter().map(current).collect();
        copies.push(past.histories[list].snapshot(query.window));
        let now = self.clock.monotonic();
        let seconds = past.spans.covered(query.window, now) / SECOND;
        drop(past);
        let merged = merge(copies, |(), ()| {});
        let mut ends = HashMap::new();
        for thread in &self.lists {
            for (hash, end) in thread.lists.lock().bans.ends(now) {
                let last = ends.entry(hash).or_insert(end);
                *last = end.max(*last);
            }
        }
        let ends_in = |hash: u64, &(): &()| Some((ends.get(&hash)? - now).div_ceil(1_000));
        TopList { seconds, ..list::by_count(merged, query, &self.redaction, ends_in) }
    }

    /// Writes the lists once a second, if they are to be shared. Never ends.
    pub async fn share(self: &Arc<Self>, texts: Option<&dyn ReplicaTexts>) {
        let (Some(share), Some(texts)) = (&self.share, texts) else { return pending().await };
        let top = self.clone();
        share.publish(texts, &self.redaction, move || top.shared_text()).await;
    }

    /// Returns the lists of other replicas, which are up to a second old.
    pub async fn others(&self, texts: Option<&dyn ReplicaTexts>) -> Result<Arc<Others>, NotShared> {
        let (Some(share), Some(texts)) = (&self.share, texts) else { return Err(NotShared::Off) };
        share.others(texts).await
    }

    /// Returns one list of all replicas: of this one, and of others. Paths of rules are as they are shown. Bans are
    /// not shared: their list is of this replica.
    pub fn list_all(&self, query: &TopQuery<'_>, others: &Others) -> TopList {
        if query.by == By::Banned {
            return self.list(query);
        }
        let own = self.list(&TopQuery { window: query.window, ..TopQuery::new(query.by) });
        others.merged(own, &self.redaction.secret_id(), query)
    }

    /// Returns the secret, and the lists with it as a text.
    fn shared_text(&self) -> (String, String) {
        let (digits, secret) = (self.redaction.secret(), self.redaction.secret_id());
        (digits, share::text(&secret, |query| self.list(query)))
    }

    /// Ends the current step if it is long enough. Takes a few milliseconds; it should not run on a thread that
    /// serves.
    pub fn end_step(&self) {
        let (mut past, now) = (self.past.lock(), self.clock.monotonic());
        if !past.spans.is_due(now) {
            return;
        }
        let end = past.spans.end_step(now);
        for list in 0..COUNTED {
            let close = |of: &Aligned| {
                let mut lists = of.lists.lock();
                let sketch = &mut lists.counted[list];
                let empty = sketch.emptied();
                std::mem::replace(sketch, empty).into_snapshot()
            };
            let closed: Vec<Snapshot<()>> = self.lists.iter().map(close).collect();
            let counting = closed.iter().filter(|closed| closed.total > 0).count();
            let max_rows = self.entries * 5 / 8 * counting;
            let step = merge(closed, |(), ()| {});
            past.histories[list].add(step, end, max_rows, HISTORY_CELLS_PER_ROW * self.entries);
        }
    }

    /// Counts seconds, and ends steps when they are long enough. Never ends.
    pub async fn follow(self: &Arc<Self>) {
        let mut ticks = interval(FOLLOW_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.second.fetch_add(1, Relaxed);
            if self.past.lock().spans.is_due(self.clock.monotonic()) {
                let top = self.clone();
                // Without a thread for it the step is longer.
                let _ = run_blocking(move || top.end_step()).await;
            }
        }
    }
}

impl fmt::Debug for Top {
    /// Omits the keys and the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Top").field("threads", &self.lists.len()).finish_non_exhaustive()
    }
}
