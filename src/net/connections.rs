//! The open connections of one listener: their limit, and which one is evicted (closed) for a newcomer at the limit.
//!
//! A newcomer, a new connection, is never refused while another is idle. Connections are evicted in this order:
//!
//! 1. those that never made a request, the oldest first;
//! 2. those that have been idle longest;
//! 3. those whose client has stopped reading a response.
//!
//! A connection with a request in progress is never evicted. If all have one, HTTP listeners accept a few newcomers
//! beyond the limit, for health checks only.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use weir_common::metric_families;
use weir_common::metrics::{Counter, Gauge, MetricSink, MetricSource, SampleValue};
use weir_common::throttle::Throttle;

/// The resolution of idle times. A clock that ticks costs one atomic load per request.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// How long a newcomer waits for another connection to close. Later newcomers wait behind it.
const ADMISSION_TIMEOUT: Duration = Duration::from_millis(100);

/// The interval between attempts to evict a connection while a newcomer waits.
const EVICTION_RETRY: Duration = Duration::from_millis(10);

/// Half a second. With more, clients that greet and do nothing else would keep those out whose greeting is on its way.
const GREETED_TICKS: u32 = 2;

#[derive(Clone, Debug, Default)]
pub struct ConnectionCounts {
    pub open: Gauge,
    pub evicted: Counter,
    pub refused: Counter,
}

metric_families! {
    OPEN: gauge("connections", &["listener"]) = "Open connections, by listener";
    EVICTED: counter("connections_evicted", &["listener"]) = "Connections closed to make room for others, by listener";
    REFUSED: counter("connections_refused", &["listener"])
        = "Connections refused because all others had requests in progress, by listener";
}

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
        let mut add = |family, value: fn(&ConnectionCounts) -> SampleValue<'_>| {
            sink.family(family);
            for (listener, counts) in &listeners {
                sink.sample(&[("listener", listener)], value(counts));
            }
        };
        add(OPEN, |counts| SampleValue::Gauge(counts.open.get() as f64));
        add(EVICTED, |counts| SampleValue::Counter(counts.evicted.get()));
        add(REFUSED, |counts| SampleValue::Counter(counts.refused.get()));
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    pub listener: &'static str,
    /// The setting that limits its connections.
    pub setting: &'static str,
    /// Concurrent connections. Eviction starts a sixteenth below: there is room while evicted connections close.
    pub max: usize,
    /// Connections beyond that, for which [`ConnectionHandle::is_overflow`] returns true.
    pub overflow: usize,
    /// A connection that made a request is evicted only after being idle for this long.
    pub min_idle: Duration,
}

#[derive(Debug)]
pub struct Connections {
    pub(super) limits: ConnectionLimits,
    /// The number of [`TICK`]s so far.
    clock: AtomicU32,
    /// Connections that were asked to close and have not closed yet.
    evicting: AtomicUsize,
    /// Connections that never made a request.
    unproven: AtomicUsize,
    state: Mutex<ConnectionsState>,
    closed: Notify,
    counts: ConnectionCounts,
    eviction_log: Throttle,
}

#[derive(Debug, Default)]
struct ConnectionsState {
    next_id: u64,
    open: HashMap<u64, Arc<ConnectionEntry>>,
    /// The result of [`candidates`]: ranking all connections for every newcomer would cost more than serving it.
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
            eviction_log: Throttle::default(),
        })
    }

    /// The number of connections from which on each newcomer evicts one.
    fn soft_limit(&self) -> usize {
        self.limits.max - self.limits.max / 16
    }

    pub(super) fn tick(&self) {
        self.clock.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many connections have closed so far.
    pub(super) fn ended(&self) -> u64 {
        let state = self.state.lock();
        state.next_id - state.open.len() as u64
    }

    fn open(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Registers a connection, regardless of the limit.
    pub fn register(self: &Arc<Self>) -> ConnectionHandle {
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        let active = AtomicU32::new(self.clock.load(Ordering::Relaxed));
        let entry = Arc::new(ConnectionEntry { id, active, ..ConnectionEntry::default() });
        state.open.insert(id, entry.clone());
        self.unproven.fetch_add(1, Ordering::Relaxed);
        self.counts.open.inc();
        let overflow = state.open.len() > self.limits.max;
        ConnectionHandle { entry, connections: self.clone(), overflow }
    }

    /// Registers a newcomer, and evicts another connection if necessary. None if all others have requests in progress.
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

    /// Evicts one connection, to make room for a newcomer. Returns whether there was one to evict.
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

/// Returns the connections to evict next, the first of them last: enough for several newcomers.
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

/// The order of eviction: the class, the tick of the last activity, and the id.
type EvictionRank = (EvictionClass, u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionClass {
    /// The connection never made a request.
    Unproven,
    Idle,
    /// The client does not read a response.
    Stalled,
}

#[derive(Debug, Default)]
struct ConnectionEntry {
    id: u64,
    /// The tick of its start or of its last request.
    active: AtomicU32,
    proven: AtomicBool,
    busy: AtomicBool,
    stalled: AtomicBool,
    evicting: AtomicBool,
    closed: AtomicBool,
    waker: AtomicWaker,
}

impl ConnectionEntry {
    fn class(&self) -> Option<EvictionClass> {
        if self.stalled.load(Ordering::Relaxed) {
            Some(EvictionClass::Stalled)
        } else if self.busy.load(Ordering::Relaxed) {
            None
        } else if self.proven.load(Ordering::Relaxed) {
            Some(EvictionClass::Idle)
        } else {
            Some(EvictionClass::Unproven)
        }
    }

    /// Returns the rank of the connection in the order of eviction; none while it must not be evicted.
    fn rank(&self, now: u32, min_idle: u32) -> Option<EvictionRank> {
        if self.evicting.load(Ordering::Relaxed) || self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let (class, active) = (self.class()?, self.active.load(Ordering::Relaxed));
        if class == EvictionClass::Idle && now.wrapping_sub(active) < min_idle {
            return None;
        }
        Some((class, active, self.id))
    }
}

/// A registered connection; dropping it unregisters the connection.
#[derive(Debug)]
pub struct ConnectionHandle {
    entry: Arc<ConnectionEntry>,
    connections: Arc<Connections>,
    overflow: bool,
}

impl ConnectionHandle {
    pub fn max_connections(&self) -> usize {
        self.connections.limits.max
    }

    /// Whether the connection is beyond the limit: only requests that cost nothing are served.
    pub fn is_overflow(&self) -> bool {
        self.overflow
    }

    /// Reports that the client has begun to send something. Until its first request it is evicted as if it had connected
    /// half a second later: after those that send nothing, but not for long.
    pub fn set_greeted(&self) {
        self.entry.active.fetch_add(GREETED_TICKS, Ordering::Relaxed);
    }

    /// Reports whether a request is in progress: then the connection is not evicted.
    pub fn set_busy(&self, busy: bool) {
        self.entry.busy.store(busy, Ordering::Relaxed);
    }

    pub fn set_stalled(&self, stalled: bool) {
        self.entry.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Reports a request: the connection is active, and no longer unproven.
    pub fn count_request(&self) {
        let now = self.connections.clock.load(Ordering::Relaxed);
        self.entry.active.store(now, Ordering::Relaxed);
        if !self.is_proven() {
            self.entry.proven.store(true, Ordering::Relaxed);
            self.connections.unproven.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the connection has made a request.
    pub fn is_proven(&self) -> bool {
        self.entry.proven.load(Ordering::Relaxed)
    }

    /// Ends when the connection is evicted. Yields once before that: data that arrived before the
    /// connection was accepted becomes readable only after the runtime has polled the system.
    pub async fn evicted(&self) {
        poll_fn(|cx| self.poll_evicted(cx)).await;
        yield_now().await;
        poll_fn(|cx| self.poll_evicted(cx)).await;
    }

    /// Ready when the connection is evicted. A connection that became busy after it was chosen is
    /// not: another is chosen. Registers the waker, so it has to be called with every poll.
    pub fn poll_evicted(&self, cx: &Context<'_>) -> Poll<()> {
        self.entry.waker.register(cx.waker());
        if !self.entry.evicting.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        if self.entry.class().is_some() {
            return Poll::Ready(());
        }
        self.entry.evicting.store(false, Ordering::Relaxed);
        self.connections.evicting.fetch_sub(1, Ordering::Relaxed);
        Poll::Pending
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.entry.closed.store(true, Ordering::Relaxed);
        self.connections.state.lock().open.remove(&self.entry.id);
        if self.entry.evicting.load(Ordering::Relaxed) {
            self.connections.evicting.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.is_proven() {
            self.connections.unproven.fetch_sub(1, Ordering::Relaxed);
        }
        self.connections.counts.open.dec();
        self.connections.closed.notify_one();
    }
}
