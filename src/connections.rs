//! The open connections of one listener: how many there may be, and which one is closed when a
//! newcomer needs its place.
//!
//! A newcomer is never refused while a connection is idle. The first to go are connections that
//! never completed a request, oldest first; then those that have been idle longest; then those
//! whose client has stopped reading its answer. A connection with a request in progress stays. Where
//! all have one, a few newcomers are still let in, to be served what costs nothing.

mod accept;
mod entry;
#[cfg(test)]
mod tests;

pub use accept::accept;
pub use entry::ConnectionHandle;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use self::entry::{ConnectionEntry, EvictionClass, EvictionRank};
use crate::throttle::Throttle;

/// The resolution of idle times. A clock that ticks costs a connection one load per request.
const TICK: Duration = Duration::from_millis(250);

/// How long a newcomer may wait for a place. Others wait behind it.
const ROOM_TIMEOUT: Duration = Duration::from_millis(100);

/// How often to look for a connection to evict while a newcomer waits.
const RETRY: Duration = Duration::from_millis(10);

/// How often one of a listener's log lines may repeat.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The metrics of a listener's connections.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub open: Gauge,
    pub evicted: Counter,
    pub refused: Counter,
}

/// What a listener allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Its name in the log.
    pub listener: &'static str,
    /// The setting that limits its connections.
    pub setting: &'static str,
    /// Connections at a time. Eviction begins a sixteenth below, so that there is room while
    /// evicted connections close.
    pub max: usize,
    /// Connections beyond that, which [are told apart](ConnectionHandle::is_overflow).
    pub overflow: usize,
    /// A connection that completed a request is evicted only when it has been idle for so long.
    pub min_idle: Duration,
}

/// The open connections of one listener.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    /// Counts [`TICK`]s.
    clock: AtomicU32,
    /// Connections that were asked to close and have not closed yet.
    evicting: AtomicUsize,
    /// Connections that never made a request.
    unproven: AtomicUsize,
    state: Mutex<State>,
    closed: Notify,
    counts: Counts,
    /// Of the log line about evictions.
    throttle: Throttle,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    open: HashMap<u64, Arc<ConnectionEntry>>,
    /// The connections to evict next, the first to go last: looking at all of them for every
    /// newcomer would cost more than serving it.
    candidates: Vec<(EvictionRank, Arc<ConnectionEntry>)>,
}

impl Connections {
    pub fn new(limits: Limits, counts: Counts) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            clock: AtomicU32::new(0),
            evicting: AtomicUsize::new(0),
            unproven: AtomicUsize::new(0),
            state: Mutex::default(),
            closed: Notify::new(),
            counts,
            throttle: Throttle::new(LOG_INTERVAL),
        })
    }

    /// Connections beyond which each newcomer evicts one.
    fn soft_limit(&self) -> usize {
        self.limits.max - self.limits.max / 16
    }

    fn tick(&self) {
        self.clock.fetch_add(1, Ordering::Relaxed);
    }

    fn open(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Registers a connection, whatever the limit.
    pub fn register(self: &Arc<Self>) -> ConnectionHandle {
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        let entry = Arc::new(ConnectionEntry::new(id, self.clock.load(Ordering::Relaxed)));
        state.open.insert(id, entry.clone());
        self.unproven.fetch_add(1, Ordering::Relaxed);
        self.counts.open.inc();
        let overflow = state.open.len() > self.limits.max;
        ConnectionHandle { entry, connections: self.clone(), overflow }
    }

    /// Registers a newcomer, evicting another connection where that is needed. None where there is
    /// no room, as all others have requests in progress.
    async fn admit(self: &Arc<Self>) -> Option<ConnectionHandle> {
        let give_up = Instant::now() + ROOM_TIMEOUT;
        loop {
            let open = self.open();
            if open >= self.soft_limit() + self.evicting.load(Ordering::Relaxed) {
                self.evict();
            }
            // Where one is about to close, there is room in a moment.
            let wait = self.is_evicting() && Instant::now() < give_up;
            let max = self.limits.max + if wait { 0 } else { self.limits.overflow };
            if open < max {
                return Some(self.register());
            }
            if !wait {
                self.counts.refused.inc();
                return None;
            }
            let _ = timeout(RETRY, self.closed.notified()).await;
        }
    }

    /// Whether a connection that was asked to close has not closed yet.
    fn is_evicting(&self) -> bool {
        self.evicting.load(Ordering::Relaxed) > 0
    }

    /// Asks one connection to close, to make room for one that is not registered yet. Returns
    /// whether there was one.
    fn evict(&self) -> bool {
        self.evict_except(None)
    }

    /// Asks one connection to close, but not the newest: its request may not have been read yet.
    fn evict_older(&self) -> bool {
        let newest = self.state.lock().next_id.checked_sub(1);
        self.evict_except(newest)
    }

    fn evict_except(&self, id: Option<u64>) -> bool {
        let now = self.clock.load(Ordering::Relaxed);
        let min_idle = self.limits.min_idle.as_millis().div_ceil(TICK.as_millis());
        let min_idle = u32::try_from(min_idle).unwrap_or(u32::MAX);
        let mut state = self.state.lock();
        for rescan in [false, true] {
            if rescan {
                state.candidates = candidates(state.open.values(), now, min_idle);
            }
            while let Some((rank, entry)) = state.candidates.pop() {
                // An unproven one may have come since.
                let is_first = rescan
                    || rank.0 == EvictionClass::Unproven
                    || self.unproven.load(Ordering::Relaxed) == 0;
                if !is_first {
                    break;
                }
                if entry.rank(now, min_idle) != Some(rank) || Some(entry.id) == id {
                    continue;
                }
                entry.evicting.store(true, Ordering::Release);
                self.evicting.fetch_add(1, Ordering::Relaxed);
                self.counts.evicted.inc();
                entry.waker.wake();
                drop(state);
                self.log_eviction();
                return true;
            }
        }
        false
    }

    fn log_eviction(&self) {
        if let Some(suppressed) = self.throttle.pass() {
            let Limits { listener, setting, max, .. } = self.limits;
            tracing::warn!(
                listener,
                limit = max,
                setting,
                suppressed,
                "connection evicted to make room for another"
            );
        }
    }
}

/// The connections to evict next, the first to go last: some of many, so that one look at all
/// serves for several newcomers.
fn candidates<'a>(
    open: impl Iterator<Item = &'a Arc<ConnectionEntry>>,
    now: u32,
    min_idle: u32,
) -> Vec<(EvictionRank, Arc<ConnectionEntry>)> {
    let ranked = open.filter_map(|entry| Some((entry.rank(now, min_idle)?, entry.clone())));
    let mut ranked: Vec<_> = ranked.collect();
    let batch = (ranked.len() / 32).max(16);
    if ranked.len() > batch {
        ranked.select_nth_unstable_by_key(batch, |(rank, _)| *rank);
        ranked.truncate(batch);
    }
    ranked.sort_unstable_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    ranked
}
