//! The state of one connection, as its listener sees it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::task::yield_now;

use super::Connections;

/// The order of eviction: the class, the tick of the last activity, and the id.
pub(super) type EvictionRank = (EvictionClass, u32, u64);

/// Half a second. With more, clients that greet and do nothing else would keep those out whose greeting is on its way.
const GREETED_TICKS: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionClass {
    /// The connection never made a request.
    Unproven,
    Idle,
    /// The client does not read a response.
    Stalled,
}

#[derive(Debug)]
pub(super) struct ConnectionEntry {
    pub id: u64,
    /// The tick of its start or of its last request.
    active: AtomicU32,
    proven: AtomicBool,
    busy: AtomicBool,
    stalled: AtomicBool,
    pub evicting: AtomicBool,
    closed: AtomicBool,
    pub waker: AtomicWaker,
}

impl ConnectionEntry {
    /// Returns the entry of a connection accepted at the tick `now`.
    pub fn new(id: u64, now: u32) -> ConnectionEntry {
        ConnectionEntry {
            id,
            active: AtomicU32::new(now),
            proven: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            evicting: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

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
    pub fn rank(&self, now: u32, min_idle: u32) -> Option<EvictionRank> {
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
    pub(super) entry: Arc<ConnectionEntry>,
    pub(super) connections: Arc<Connections>,
    pub(super) overflow: bool,
}

impl ConnectionHandle {
    /// Returns the most connections that the listener may have.
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

    /// Reports whether the client has stopped reading a response.
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
