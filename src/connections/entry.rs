//! One connection among those of its listener.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::task::yield_now;

use super::Connections;

/// The order of eviction: the class, when it was last active, and its number.
pub(super) type EvictionRank = (EvictionClass, u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionClass {
    /// It never completed a request.
    Unproven,
    Idle,
    /// Its client does not read the answer.
    Stalled,
}

#[derive(Debug)]
pub(super) struct ConnectionEntry {
    pub id: u64,
    /// The tick of its beginning or of its last request.
    active: AtomicU32,
    proven: AtomicBool,
    busy: AtomicBool,
    stalled: AtomicBool,
    pub evicting: AtomicBool,
    closed: AtomicBool,
    pub waker: AtomicWaker,
}

impl ConnectionEntry {
    /// A new one, which begins at the tick `now`.
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

    /// Its place in the order of eviction; none while it must stay.
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

/// One connection's entry among all; it leaves when this is dropped.
#[derive(Debug)]
pub struct ConnectionHandle {
    pub(super) entry: Arc<ConnectionEntry>,
    pub(super) connections: Arc<Connections>,
    pub(super) overflow: bool,
}

impl ConnectionHandle {
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
        if !self.is_proven() {
            self.entry.proven.store(true, Ordering::Relaxed);
            self.connections.unproven.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the connection has completed a request.
    pub fn is_proven(&self) -> bool {
        self.entry.proven.load(Ordering::Relaxed)
    }

    /// Ends when the connection has to close, after what its client has sent had its turn: data that
    /// arrived before the connection was accepted is reported only after the runtime has looked.
    pub async fn evicted(&self) {
        poll_fn(|cx| self.poll_evicted(cx)).await;
        yield_now().await;
        poll_fn(|cx| self.poll_evicted(cx)).await;
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
