//! The open connections of one listener: how many there may be, and which one is closed when a
//! newcomer needs its place.
//!
//! A newcomer is never refused while a connection is idle. The first to go are connections that
//! never completed a request, oldest first; then those that have been idle longest; then those
//! whose client has stopped reading its answer. A connection with a request in progress stays. Where
//! all have one, a few newcomers are still let in, to be served what costs nothing.

mod accept;
#[cfg(test)]
mod tests;

pub use accept::accept;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// The resolution of idle times. A clock that ticks costs a connection one load per request.
const TICK: Duration = Duration::from_millis(250);

/// How long a newcomer may wait for a place. Others wait behind it.
const ROOM_TIMEOUT: Duration = Duration::from_millis(100);

/// How often to look for a connection to evict while a newcomer waits.
const RETRY: Duration = Duration::from_millis(10);

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
    /// Connections beyond that, which [are told apart](Handle::is_overflow).
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
    state: Mutex<State>,
    closed: Notify,
    counts: Counts,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    open: HashMap<u64, Arc<Entry>>,
    /// The connections to evict next, the first to go last: looking at all of them for every
    /// newcomer would cost more than serving it.
    candidates: Vec<(Rank, Arc<Entry>)>,
}

/// The order of eviction: the class, when it was last active, and its number.
type Rank = (Class, u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// It never completed a request.
    Unproven,
    Idle,
    /// Its client does not read the answer.
    Stalled,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    /// The tick of its beginning or of its last request.
    active: AtomicU32,
    proven: AtomicBool,
    busy: AtomicBool,
    stalled: AtomicBool,
    evicting: AtomicBool,
    closed: AtomicBool,
    waker: AtomicWaker,
}

impl Entry {
    fn class(&self) -> Option<Class> {
        if self.stalled.load(Ordering::Relaxed) {
            Some(Class::Stalled)
        } else if self.busy.load(Ordering::Relaxed) {
            None
        } else if self.proven.load(Ordering::Relaxed) {
            Some(Class::Idle)
        } else {
            Some(Class::Unproven)
        }
    }

    /// Its place in the order of eviction; none while it must stay.
    fn rank(&self, now: u32, min_idle: u32) -> Option<Rank> {
        if self.evicting.load(Ordering::Relaxed) || self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let (class, active) = (self.class()?, self.active.load(Ordering::Relaxed));
        if class == Class::Idle && now.wrapping_sub(active) < min_idle {
            return None;
        }
        Some((class, active, self.id))
    }
}

impl Connections {
    pub fn new(limits: Limits, counts: Counts) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            clock: AtomicU32::new(0),
            evicting: AtomicUsize::new(0),
            state: Mutex::default(),
            closed: Notify::new(),
            counts,
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
    pub fn register(self: &Arc<Self>) -> Handle {
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        let entry = Arc::new(Entry {
            id,
            active: AtomicU32::new(self.clock.load(Ordering::Relaxed)),
            proven: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            evicting: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        state.open.insert(id, entry.clone());
        self.counts.open.inc();
        let overflow = state.open.len() > self.limits.max;
        Handle { entry, connections: self.clone(), overflow }
    }

    /// Registers a newcomer, evicting another connection where that is needed. None where there is
    /// no room, as all others have requests in progress.
    async fn admit(self: &Arc<Self>) -> Option<Handle> {
        let give_up = Instant::now() + ROOM_TIMEOUT;
        loop {
            let open = self.open();
            if open >= self.soft_limit() + self.evicting.load(Ordering::Relaxed) {
                self.evict();
            }
            // Where one is about to close, there is room in a moment.
            let wait = self.evicting.load(Ordering::Relaxed) > 0 && Instant::now() < give_up;
            let max = self.limits.max + if wait { 0 } else { self.limits.overflow };
            if open < max {
                return Some(self.register());
            }
            if Instant::now() >= give_up {
                self.counts.refused.inc();
                return None;
            }
            let _ = timeout(RETRY, self.closed.notified()).await;
        }
    }

    /// Asks one connection to close. Returns whether there was one.
    fn evict(&self) -> bool {
        let now = self.clock.load(Ordering::Relaxed);
        let min_idle = self.limits.min_idle.as_millis().div_ceil(TICK.as_millis());
        let min_idle = u32::try_from(min_idle).unwrap_or(u32::MAX);
        let mut state = self.state.lock();
        for rescan in [false, true] {
            if rescan {
                state.candidates = candidates(state.open.values(), now, min_idle);
            }
            while let Some((rank, entry)) = state.candidates.pop() {
                if entry.rank(now, min_idle) != Some(rank) {
                    continue;
                }
                entry.evicting.store(true, Ordering::Release);
                self.evicting.fetch_add(1, Ordering::Relaxed);
                self.counts.evicted.inc();
                entry.waker.wake();
                return true;
            }
        }
        false
    }
}

/// The connections to evict next, the first to go last: some of many, so that one look at all
/// serves for several newcomers.
fn candidates<'a>(
    open: impl Iterator<Item = &'a Arc<Entry>>,
    now: u32,
    min_idle: u32,
) -> Vec<(Rank, Arc<Entry>)> {
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

/// One connection's entry among all; it leaves when this is dropped.
#[derive(Debug)]
pub struct Handle {
    entry: Arc<Entry>,
    connections: Arc<Connections>,
    overflow: bool,
}

impl Handle {
    /// Whether the connection is one beyond the limit, to be served only what costs nothing.
    pub fn is_overflow(&self) -> bool {
        self.overflow
    }

    /// Reports whether a request is in progress, so that the connection must stay.
    pub fn set_busy(&self, busy: bool) {
        self.entry.busy.store(busy, Ordering::Relaxed);
    }

    /// Reports whether the client has stopped reading an answer.
    pub fn set_stalled(&self, stalled: bool) {
        self.entry.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Reports a request, so that the connection is not one that never made any.
    pub fn count_request(&self) {
        let now = self.connections.clock.load(Ordering::Relaxed);
        self.entry.active.store(now, Ordering::Relaxed);
        self.entry.proven.store(true, Ordering::Relaxed);
    }

    /// Whether the connection has completed a request.
    pub fn is_proven(&self) -> bool {
        self.entry.proven.load(Ordering::Relaxed)
    }

    /// Ready when the connection has to close. A connection that became busy after it was chosen
    /// stays, and another is chosen.
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

impl Drop for Handle {
    fn drop(&mut self) {
        self.entry.closed.store(true, Ordering::Relaxed);
        self.connections.state.lock().open.remove(&self.entry.id);
        if self.entry.evicting.load(Ordering::Relaxed) {
            self.connections.evicting.fetch_sub(1, Ordering::Relaxed);
        }
        self.connections.counts.open.dec();
        self.connections.closed.notify_one();
    }
}
