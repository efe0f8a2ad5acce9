//! The connection of one thread to one Redis server, and the charges that wait to be sent over it.
//!
//! One round trip at a time: charges that arrive during it share the next one. So the cost of a decision falls as load
//! rises, and no queue grows towards a server that does not answer: a round trip that takes longer than `slow_after`
//! marks the connection as slow, and charges fail at once until the server has answered a probe within `slow_after`.
//! Each request waits for up to its own timeout, whatever `slow_after`. Nothing is sent twice that may still count.
//!
//! Callers use the [handle](Connection), which knows what is to be sent, and whether the connection is up. A task, the
//! [driver], owns the socket.

pub(super) mod driver;
pub(super) mod error;
pub(super) mod examine;
pub(super) mod handshake;
pub(super) mod target;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::target::Target;
use super::context::RedisContext;
use super::options::Endpoint;
use super::pending_charge::{PendingCharge, fail_all};
use weir_store::StoreError;

#[derive(Debug)]
pub(super) struct Connection {
    pub target: Target,
    shared: Arc<RedisContext>,
    pending: Mutex<Vec<PendingCharge>>,
    wake: Notify,
    /// [`UP`], [`SLOW`], or the [error](StoreError) why the connection is not used.
    down: AtomicU8,
    /// The server of the open connection.
    endpoint: Mutex<Option<Endpoint>>,
    /// The server that the connection is to move to.
    next: Mutex<Option<Endpoint>>,
    closed: AtomicBool,
    answered: AtomicBool,
    /// Whether connecting has ended once, well or not.
    tried: AtomicBool,
}

/// Values of [`Connection::down`] besides those of errors.
const UP: u8 = u8::MAX;
/// Open, and probed after a slow round trip.
const SLOW: u8 = u8::MAX - 1;

impl Connection {
    fn new(target: Target, shared: Arc<RedisContext>) -> Connection {
        let (pending, wake, endpoint, next, closed, answered, tried) = Default::default();
        // Charges that come while it connects for the first time wait for that.
        let down = AtomicU8::new(UP);
        Connection { target, shared, pending, wake, down, endpoint, next, closed, answered, tried }
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    pub fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    pub fn has_tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
    }

    fn set_tried(&self) {
        if !self.tried.swap(true, Ordering::Relaxed) {
            self.shared.changed.send_replace(());
        }
    }

    /// Returns why the connection is down or slow; none where it is up.
    pub fn down(&self) -> Option<StoreError> {
        match self.down.load(Ordering::Relaxed) {
            UP => None,
            SLOW => Some(StoreError::TimedOut),
            error => StoreError::ALL.get(usize::from(error)).copied(),
        }
    }

    pub fn is_slow(&self) -> bool {
        self.down.load(Ordering::Relaxed) == SLOW
    }

    pub fn is_up(&self) -> bool {
        self.has_answered() && self.down().is_none()
    }

    pub fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.lock().clone()
    }

    /// Moves the connection to another server as soon as no round trip is in flight. Charges wait for that.
    pub fn move_to(&self, endpoint: Endpoint) {
        *self.next.lock() = Some(endpoint);
        self.wake.notify_one();
    }

    /// Sends charges together with the next round trip; fails them at once where the connection is down or slow.
    pub fn push(&self, charges: impl IntoIterator<Item = PendingCharge>) {
        if let Some(error) = self.down() {
            return fail_all(charges, error);
        }
        let mut pending = self.pending.lock();
        let first = pending.is_empty();
        pending.extend(charges);
        drop(pending);
        if first {
            self.wake.notify_one();
        }
    }

    fn set_down(&self, error: StoreError) {
        if matches!(self.down.swap(error as u8, Ordering::Relaxed), UP | SLOW) {
            self.shared.counts.down.fetch_add(1, Ordering::Relaxed);
        }
        self.fail_pending(error);
    }

    fn set_slow(&self) {
        self.down.store(SLOW, Ordering::Relaxed);
        self.fail_pending(StoreError::TimedOut);
    }

    fn fail_pending(&self, error: StoreError) {
        fail_all(self.pending.lock().drain(..), error);
    }

    fn set_up(&self) {
        let before = self.down.swap(UP, Ordering::Relaxed);
        if before != UP {
            *self.shared.recovered.lock() = Some(Instant::now());
            *self.shared.late.lock() = None;
        }
        if !matches!(before, UP | SLOW) {
            self.shared.counts.up.fetch_add(1, Ordering::Relaxed);
        }
        if !self.answered.swap(true, Ordering::Relaxed) {
            self.shared.changed.send_replace(());
        }
        self.set_tried();
    }
}
