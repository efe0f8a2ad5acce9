//! The Redis protocol: limits for any Redis client.
//!
//! - `parser`, `reply`: the protocol, in versions 2 and 3
//! - `connection`: reads, answers and writes, in turns with other connections
//! - `session`: commands about the connection itself
//! - `commands`: those that charge or read the store; `plans` keeps the plans that they describe

mod commands;
mod connection;
pub mod parser;
mod password;
mod plans;
mod reply;
mod session;
mod stats;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use self::commands::Throttle;
use self::connection::Connection;
pub use self::password::Password;
use self::plans::Plans;
pub use self::stats::RespStats;
use crate::connections::ConnectionHandle;
use crate::limit::ReduceBucket;
use crate::service::RateLimit;
use crate::store::{States, Store};
use crate::throttle;

/// How often the file of the password is read.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The shortest interval between two log lines of one kind.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What a client may take from the process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The timeout of receiving the rest of a request, and of a client reading replies.
    pub timeout: Duration,
    /// The largest request, in bytes.
    pub max_request: usize,
}

/// Serves connections of Redis clients.
#[derive(Debug)]
pub struct Resp<S> {
    rate_limit: RateLimit<S>,
    limits: Limits,
    password: Password,
    connections: AtomicU64,
    throttles: Plans<Throttle>,
    buckets: Plans<ReduceBucket>,
    /// Whether the store decides as of a time that the client names.
    accepts_at: bool,
    stats: Arc<RespStats>,
    http_log: throttle::Throttle,
}

impl<S: Store + States + 'static> Resp<S> {
    pub fn new(rate_limit: RateLimit<S>, limits: Limits, password: Password) -> Resp<S> {
        Resp {
            rate_limit,
            limits,
            password,
            connections: AtomicU64::new(0),
            throttles: Plans::new(),
            buckets: Plans::new(),
            accepts_at: true,
            stats: Arc::default(),
            http_log: throttle::Throttle::new(LOG_INTERVAL),
        }
    }

    /// Refuses times that clients name, for a store that goes by a clock of its own.
    pub fn refusing_at(self) -> Resp<S> {
        Resp { accepts_at: false, ..self }
    }

    /// Serves a connection until it is closed, or `shutdown` turns true and what was read is answered.
    pub async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        handle: &ConnectionHandle,
        shutdown: watch::Receiver<bool>,
    ) {
        Connection::new(self, stream, handle).serve(shutdown).await;
    }
}

impl<S> Resp<S> {
    pub fn stats(&self) -> &Arc<RespStats> {
        &self.stats
    }

    /// Reads the password again when its file changes. Never ends.
    pub async fn follow_password(self: Arc<Self>) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // A few bytes, on a thread that serves nobody.
            self.password.poll();
        }
    }

    /// Numbers the connections, for `CLIENT ID`.
    fn next_id(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }
}
