//! Counting in Redis, shared by all replicas.
//!
//! Scripts charge keys, atomically; they are in `lua/`, and the header of each describes its arguments and
//! its reply. A script returns the state before the charge and the time; [`limit`](weir_limit) computes
//! the decision from them, as for every store. Where a script would do no more than `INCRBY`, that is
//! sent instead; `open_windows.rs` explains when.
//!
//! The path of a charge, each module using only those after it:
//!
//! - `connections`: the connections of the current thread, to one server or to a `cluster`
//! - `connection`: one socket; `connection/driver` has its states
//! - `round_trip`: sends a batch, answers its charges, returns redirects
//! - `batch`: pending charges as script calls (`script`, `lua/`) and plain `INCRBY`s
//! - `reply`: the answers that a request waits for
//! - `trip_span`: the span of a round trip, for a request that is recorded
//!
//! Reading and resetting a state (`states`) has connections of its own (`direct`).

mod access;
mod batch;
mod cancel;
mod cluster;
mod codec;
mod connection;
mod connections;
mod context;
mod counts;
mod direct;
mod key;
mod log;
mod master;
mod open_windows;
mod operations;
mod options;
mod replica_texts;
mod reply;
mod round_trip;
mod script;
mod shared_table;
mod states;
#[cfg(test)]
mod tests;
mod trip_span;

use std::iter::zip;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

pub use self::access::{Access, Endpoint, Login, PasswordFile, Tls};
use self::batch::{Group, PendingCharge};
use self::cancel::CancelOnDrop;
use self::connection::Connection;
use self::connections::ThreadConnections;
use self::context::RedisContext;
pub use self::counts::RedisCounts;
use self::direct::DirectConnections;
pub use self::options::{Clock, Options, Topology};
use self::reply::{AllAnswers, Reply};
use super::local::LeaseCharge;
use super::{Answers, Batch, Store, StoreError};
use weir_common::threads;

/// Keeps states in Redis.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<RedisContext>,
    /// One for each serving thread, started at its first use, on the current runtime.
    connections: Box<[OnceLock<ThreadConnections>]>,
    next_group: AtomicU32,
    /// The connections over which states are read and reset.
    direct: DirectConnections,
    /// The name of this process's text among those of replicas.
    replica_id: String,
}

impl RedisStore {
    /// Returns a store that does not connect yet.
    pub fn new(options: Options) -> RedisStore {
        let connections = (0..options.connections.max(1)).map(|_| OnceLock::new()).collect();
        let shared = Arc::new(RedisContext::new(options));
        let (next_group, direct) = (AtomicU32::new(1), DirectConnections::new());
        let replica_id = replica_texts::random_id();
        RedisStore { shared, connections, next_group, direct, replica_id }
    }

    /// Returns the counts for metrics.
    pub fn counts(&self) -> &RedisCounts {
        &self.shared.counts
    }

    /// Returns how many connections there are, and how many of them are down. Slow ones are not down.
    pub fn connections_down(&self) -> (usize, usize) {
        let connections: Vec<Arc<Connection>> = self.all_connections().collect();
        let unused = connections.iter().filter(|connection| connection.down().is_some());
        (connections.len(), unused.filter(|connection| !connection.is_slow()).count())
    }

    /// Returns how many connections are open, and probed after a slow round trip.
    pub fn connections_slow(&self) -> usize {
        self.all_connections().filter(|connection| connection.is_slow()).count()
    }

    /// Returns how many connections are up, on all threads, to all nodes.
    fn connections_up(&self) -> usize {
        self.all_connections().filter(|connection| connection.is_up()).count()
    }

    fn all_connections(&self) -> impl Iterator<Item = Arc<Connection>> + '_ {
        self.connections.iter().filter_map(OnceLock::get).flat_map(ThreadConnections::all)
    }

    /// Returns whether any connection is up, on any thread, to any node.
    fn any_connection_up(&self) -> bool {
        self.all_connections().any(|connection| connection.is_up())
    }

    /// Waits until Redis has answered for the first time: each node of a cluster that serves slots, on
    /// the connections of every thread that has used the store. Connects the current thread, so that
    /// its first request need not wait for that.
    pub async fn answered(&self) {
        let mut changed = self.shared.changed.subscribe();
        self.connections();
        let all = || self.connections.iter().filter_map(OnceLock::get);
        // It cannot fail: this store holds the sender.
        let _ = changed.wait_for(|()| all().all(ThreadConnections::has_answered)).await;
    }

    /// Returns the connections of the current thread; starts them at the first call.
    fn connections(&self) -> &ThreadConnections {
        let of_thread = &self.connections[threads::number() % self.connections.len()];
        of_thread.get_or_init(|| ThreadConnections::start(self.shared.clone()))
    }

    fn new_group(&self, quota_passes: bool) -> Group {
        let id = NonZeroU32::new(self.next_group.fetch_add(1, Ordering::Relaxed));
        Group { id: id.unwrap_or(NonZeroU32::MIN), quota_passes }
    }
}

impl Store for RedisStore {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        let connections = self.connections();
        let deadline = Instant::now().checked_add(batch.budget);
        let whole = batch.budget.saturating_add(batch.waited);
        let unanswered = match whole < self.shared.options.caller_deadline_below {
            true => StoreError::CallerDeadline,
            false => StoreError::TimedOut,
        };
        let reply = Reply::recorded(batch.charges.len(), unanswered, deadline, batch.span);
        let options = &self.shared.options;
        let pending = batch.charges.iter().enumerate().map(|(index, charge)| {
            PendingCharge::new(options, charge, &reply, index, batch.together)
        });
        if batch.together {
            let group = self.new_group(batch.quota_passes);
            connections.push(zip(pending, batch.charges).map(|(pending, charge)| PendingCharge {
                group: Some(group),
                denial_where_failed: charge.denial_where_failed(batch.on_failure),
                ..pending
            }));
        } else {
            connections.push(pending);
        }
        let _cancel = CancelOnDrop { options, connections, batch: &batch, reply: &reply };
        let _ = tokio::time::timeout(batch.budget, AllAnswers(&reply)).await;
        answers.extend(reply.take());
    }

    fn charge_lease(&self, lease: Arc<LeaseCharge>) {
        let (options, reply) = (&self.shared.options, Reply::to_lease(lease.clone()));
        let pending =
            lease.with_charge(|charge| PendingCharge::new(options, charge, &reply, 0, false));
        self.connections().push([pending]);
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.connections.iter().filter_map(OnceLock::get).for_each(ThreadConnections::close);
    }
}
