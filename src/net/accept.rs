//! The accept loop of a listener.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::connections::{LOG_INTERVAL, TICK};
use super::{ConnectionHandle, Connections, Listener, Socket};
use weir_common::throttle::Throttle;

/// How long to wait if the system is out of descriptors or memory.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// Accepts connections and hands them to `serve`. Never ends.
pub async fn accept(
    listener: Listener,
    connections: Arc<Connections>,
    mut serve: impl FnMut(Socket, ConnectionHandle),
) {
    let limits = connections.limits;
    let (failure_log, refusal_log) = (Throttle::new(LOG_INTERVAL), Throttle::new(LOG_INTERVAL));
    let mut spares = Spares::new(limits.max);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    spares.refill();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ticks.tick() => {
                connections.tick();
                spares.refill();
                continue;
            }
        };
        let socket = match accepted {
            Ok(socket) => {
                // If it used up a spare descriptor, another connection has to close.
                if !spares.refill() {
                    connections.evict();
                }
                socket
            }
            Err(error) => {
                if let Some(suppressed) = failure_log.pass() {
                    let listener = limits.listener;
                    tracing::warn!(%error, listener, suppressed, "cannot accept a connection");
                }
                // Other errors concern one client, and others need not wait. With a spare released
                // the next attempt succeeds; without, evict a connection, but one at a time: the
                // system reports exhaustion even when no client waits.
                if is_exhausted(&error) && !spares.release() {
                    if !connections.is_evicting() {
                        connections.evict_older();
                    }
                    sleep(ACCEPT_BACKOFF).await;
                }
                continue;
            }
        };
        match connections.admit().await {
            Some(handle) => serve(socket, handle),
            None => {
                if let Some(suppressed) = refusal_log.pass() {
                    tracing::warn!(
                        listener = limits.listener,
                        limit = limits.max,
                        setting = limits.setting,
                        suppressed,
                        "connection refused: all other connections have requests in progress"
                    );
                }
            }
        }
    }
}

/// Whether the process or the system is out of descriptors or memory.
fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| exhausted.contains(&errno))
}

/// File descriptors in reserve, for newcomers when no others are left.
#[derive(Debug)]
struct Spares {
    count: usize,
    open: Vec<File>,
}

impl Spares {
    const MAX: usize = 4;

    /// Returns the spares of a listener with up to `connections`: none if there are hardly any descriptors, which others need,
    /// such as those that read rules.
    fn new(connections: usize) -> Spares {
        Spares { count: Spares::MAX.min(connections / 16), open: Vec::new() }
    }

    /// Reopens released descriptors. Returns false if the system has none left.
    fn refill(&mut self) -> bool {
        while self.open.len() < self.count {
            let Ok(spare) = File::open("/dev/null") else { return false };
            self.open.push(spare);
        }
        true
    }

    /// Closes one descriptor. Returns false if none is left.
    fn release(&mut self) -> bool {
        self.open.pop().is_some()
    }
}
