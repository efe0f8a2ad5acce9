//! The open connections of one listener: their limit, and which one is evicted for a newcomer.
//!
//! A newcomer is never refused while a connection is idle. Connections are evicted in this order:
//!
//! 1. those that never made a request, the oldest first;
//! 2. those that have been idle longest;
//! 3. those whose client has stopped reading a response.
//!
//! A connection with a request in progress is never evicted. If all have one, a few newcomers are
//! accepted beyond the limit, for requests that cost nothing.

mod entry;
#[cfg(test)]
mod tests;

pub use entry::ConnectionHandle;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use self::entry::{ConnectionEntry, EvictionClass, EvictionRank};
use weir_common::metrics::{Counter, Gauge, MetricFamily, MetricSink, MetricSource, SampleValue};
use weir_common::throttle::Throttle;

/// The resolution of idle times. A clock that ticks costs one atomic load per request.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// How long a newcomer waits for a place. Later newcomers wait behind it.
const ADMISSION_TIMEOUT: Duration = Duration::from_millis(100);

/// The interval between attempts to evict a connection while a newcomer waits.
const EVICTION_RETRY: Duration = Duration::from_millis(10);

/// The shortest interval between two log lines of one kind.
pub(super) const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The metrics of a listener's connections.
#[derive(Clone, Debug, Default)]
pub struct ConnectionCounts {
    pub open: Gauge,
    pub evicted: Counter,
    pub refused: Counter,
}

const OPEN: MetricFamily =
    MetricFamily::gauge("connections", "Open connections, by listener", &["listener"]);
const EVICTED: MetricFamily = MetricFamily::counter(
    "connections_evicted",
    "Connections closed to make room for others, by listener",
    &["listener"],
);
const REFUSED: MetricFamily = MetricFamily::counter(
    "connections_refused",
    "Connections refused because all others had requests in progress, by listener",
    &["listener"],
);

/// The metrics of the connections of all listeners.
#[derive(Debug, Default)]
pub struct ListenerMetrics(Mutex<Vec<(&'static str, ConnectionCounts)>>);

impl ListenerMetrics {
    /// Returns the counts of a listener. Call it once for each.
    pub fn add(&self, listener: &'static str) -> ConnectionCounts {
        let counts = ConnectionCounts::default();
        self.0.lock().push((listener, counts.clone()));
        counts
    }
}

impl MetricSource for ListenerMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let listeners = self.0.lock().clone();
        sink.family(OPEN);
        for (listener, counts) in &listeners {
            sink.sample(&[("listener", listener)], SampleValue::Gauge(counts.open.get() as f64));
        }
        sink.family(EVICTED);
        for (listener, counts) in &listeners {
            sink.sample(&[("listener", listener)], SampleValue::Counter(counts.evicted.get()));
        }
        sink.family(REFUSED);
        for (listener, counts) in &listeners {
            sink.sample(&[("listener", listener)], SampleValue::Counter(counts.refused.get()));
        }
    }
}

/// The limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The name of the listener, for the log.
    pub listener: &'static str,
    /// The setting that limits its connections.
    pub setting: &'static str,
    /// Concurrent connections. Eviction starts a sixteenth below, so that there is room while
    /// evicted connections close.
    pub max: usize,
    /// Connections beyond that, for which [`ConnectionHandle::is_overflow`] returns true.
    pub overflow: usize,
    /// A connection that made a request is evicted only after being idle for this long.
    pub min_idle: Duration,
}

/// The open connections of one listener.
#[derive(Debug)]
pub struct Connections {
    pub(super) limits: ConnectionLimits,
    /// The number of [`TICK`]s so far.
    clock: AtomicU32,
    /// Connections that were asked to close and have not closed yet.
    evicting: AtomicUsize,
    /// Connections that never made a request.
    unproven: AtomicUsize,
    state: Mutex<State>,
    closed: Notify,
    counts: ConnectionCounts,
    eviction_log: Throttle,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    open: HashMap<u64, Arc<ConnectionEntry>>,
    /// The connections to evict next, the first of them last. Ranking all connections for every
    /// newcomer would cost more than serving it.
    candidates: Vec<(EvictionRank, Arc<ConnectionEntry>)>,
}

impl Connections {
    pub fn new(limits: ConnectionLimits, counts: ConnectionCounts) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            clock: AtomicU32::new(0),
            evicting: AtomicUsize::new(0),
            unproven: AtomicUsize::new(0),
            state: Mutex::default(),
            closed: Notify::new(),
            counts,
            eviction_log: Throttle::new(LOG_INTERVAL),
        })
    }

    /// The number of connections from which on each newcomer evicts one.
    fn soft_limit(&self) -> usize {
        self.limits.max - self.limits.max / 16
    }

    pub(super) fn tick(&self) {
        self.clock.fetch_add(1, Ordering::Relaxed);
    }

    fn open(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Registers a connection, regardless of the limit.
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

    /// Registers a newcomer, and evicts another connection if necessary. None if all others have
    /// requests in progress.
    pub(super) async fn admit(self: &Arc<Self>) -> Option<ConnectionHandle> {
        let deadline = Instant::now() + ADMISSION_TIMEOUT;
        loop {
            let open = self.open();
            if open >= self.soft_limit() + self.evicting.load(Ordering::Relaxed) {
                self.evict();
            }
            // An evicted connection makes room as soon as it has closed.
            let wait = self.is_evicting() && Instant::now() < deadline;
            let max = self.limits.max + if wait { 0 } else { self.limits.overflow };
            if open < max {
                return Some(self.register());
            }
            if !wait {
                self.counts.refused.inc();
                return None;
            }
            let _ = timeout(EVICTION_RETRY, self.closed.notified()).await;
        }
    }

    /// Whether a connection that was asked to close has not closed yet.
    pub(super) fn is_evicting(&self) -> bool {
        self.evicting.load(Ordering::Relaxed) > 0
    }

    /// Evicts one connection, to make room for one that is not registered yet. Returns whether
    /// there was one to evict.
    pub(super) fn evict(&self) -> bool {
        self.evict_except(None)
    }

    /// Evicts one connection, but not the newest: its request may not have been read yet.
    pub(super) fn evict_older(&self) {
        let newest = self.state.lock().next_id.checked_sub(1);
        self.evict_except(newest);
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
                // An unproven one may have connected since the ranking.
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
        if let Some(suppressed) = self.eviction_log.pass() {
            let ConnectionLimits { listener, setting, max, .. } = self.limits;
            tracing::warn!(
                listener,
                limit = max,
                setting,
                suppressed,
                "connection evicted to make room for a new one"
            );
        }
    }
}

/// Ranks the connections, and returns the first of them to evict in reverse order: enough for
/// several newcomers.
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
