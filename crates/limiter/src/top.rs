//! The keys with the most hits and denials, with those of shadow rules listed separately, and near a limit.
//!
//! Each serving thread counts in sketches of its own: [`Top::record`] locks those of the current
//! thread. [`Top::list`] copies them one after the other, which locks each for some microseconds, and
//! merges the copies. Every decision is counted, without sampling, so that the reported errors are
//! certain.
//!
//! **Bounded.** Each of the four lists of a thread has `entries` rows; a row keeps up to 512 bytes
//! of its key and 128 of the path of its rule, and has a few counters.

mod key;
mod list;
mod merge;
mod near;
mod redact;
mod sketch;
#[cfg(test)]
mod tests;

pub use list::{By, Filter, LimitUsage, Query, TopList, TopRow};
pub use redact::Redaction;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use self::key::{Key, KeyHasher};
use self::merge::merge;
use self::near::{Near, NearKeys, NearNow};
use self::sketch::Sketch;
use weir_common::clock::Monotonic;
use weir_common::entry::Entry;
use weir_common::threads;
use weir_limit::{Micros, SECOND};

/// How keys are counted.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rows of each list, on each thread; at least 1.
    pub entries: usize,
    /// Descriptor keys whose values are shown as hashes.
    pub redact: Vec<String>,
    /// The number of threads that count.
    pub threads: usize,
}

/// Counts the hits, denials and near admissions of keys.
pub struct Top {
    hasher: KeyHasher,
    /// The lists of each thread, by the thread's number.
    lists: Box<[Aligned]>,
    redaction: Arc<Redaction>,
    clock: Arc<dyn Monotonic>,
    started: Micros,
}

/// Starts a cache line, so that threads do not slow each other down.
#[repr(align(64))]
struct Aligned(Mutex<Lists>);

/// The lists of one thread.
struct Lists {
    hits: Sketch<()>,
    denied: Sketch<()>,
    would_be_denied: Sketch<()>,
    near: NearKeys,
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

/// What was decided about hits.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// Admitted, at or over `near_limit_ratio` of some limits.
    Admitted(&'a [NearAdmission<'a>]),
    Denied,
    /// Over the limit of a rule in shadow mode, or in the global shadow mode.
    WouldBeDenied,
}

/// A limit after hits that it admitted.
#[derive(Clone, Copy, Debug)]
pub struct NearAdmission<'a> {
    /// Identifies the limit among all that the key may have, by any evenly spread number.
    pub limit: u64,
    /// The name of the limit; may be empty.
    pub name: &'a str,
    pub used: u64,
    pub n: u32,
    pub reset_after: Micros,
}

impl Top {
    /// Returns empty lists.
    pub fn new(options: Options, clock: Arc<dyn Monotonic>) -> Top {
        let lists = || Lists {
            hits: Sketch::new(options.entries.max(1)),
            denied: Sketch::new(options.entries.max(1)),
            would_be_denied: Sketch::new(options.entries.max(1)),
            near: NearKeys::new(options.entries),
        };
        Top {
            hasher: KeyHasher::default(),
            lists: (0..options.threads.max(1)).map(|_| Aligned(Mutex::new(lists()))).collect(),
            redaction: Arc::new(Redaction::new(options.redact)),
            started: clock.monotonic(),
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
            let Aligned(lists) = &self.lists[threads::number() % self.lists.len()];
            self.record_in(&mut lists.lock(), recorded);
        }
    }

    #[inline]
    fn record_in(&self, lists: &mut Lists, recorded: &Recorded<'_>) {
        let Recorded { domain, entries, rule, hits, outcome } = *recorded;
        let key = self.hasher.key(domain, entries);
        lists.hits.count(&key, rule, hits);
        match outcome {
            Outcome::Denied => lists.denied.count(&key, rule, hits),
            Outcome::WouldBeDenied => lists.would_be_denied.count(&key, rule, hits),
            Outcome::Admitted(near) => {
                for near in near {
                    self.record_near(lists, &key, rule, hits, near);
                }
            }
        }
    }

    #[inline(never)]
    fn record_near(
        &self,
        lists: &mut Lists,
        key: &Key<'_>,
        rule: &str,
        hits: u64,
        near: &NearAdmission<'_>,
    ) {
        let NearAdmission { limit, name, used, n, reset_after } = *near;
        let key = key.of_limit(limit);
        let at = self.clock.monotonic();
        let near = NearNow { limit: name, used, n, at, reset: at.saturating_add(reset_after) };
        lists.near.add(&key, rule, hits, &near);
    }

    /// Returns one list of all threads.
    pub fn list(&self, query: &Query<'_>) -> TopList {
        let now = self.clock.monotonic();
        let seconds = now.saturating_sub(self.started) / SECOND;
        let count = |of: fn(&Lists) -> &Sketch<()>| {
            let copies = self.lists.iter().map(|Aligned(lists)| of(&lists.lock()).snapshot());
            let merged = merge(copies.collect(), |(), ()| {});
            list::by_count(merged, query, seconds, &self.redaction)
        };
        match query.by {
            By::Hits => count(|lists| &lists.hits),
            By::Denied => count(|lists| &lists.denied),
            By::WouldBeDenied => count(|lists| &lists.would_be_denied),
            By::Near => {
                let copies = self.lists.iter().map(|Aligned(lists)| lists.lock().near.snapshot());
                let merged = merge(copies.collect(), Near::combine);
                list::by_fraction(merged, query, seconds, &self.redaction, now)
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
