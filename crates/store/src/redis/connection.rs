//! A connection to one server, and what is sent over it.
//!
//! One round trip at a time: charges that arrive during it share the next one. So the cost of a decision
//! falls as load rises, and no queue grows towards a server that does not answer: a round trip that
//! takes longer than `slow_after` marks the connection as slow, and charges fail at once until the server
//! has answered a probe within `slow_after`. Each request waits for up to its own budget, whatever the
//! threshold. Nothing is sent twice that may still count.
//!
//! Callers use the [handle](Connection); a task, the [driver], owns the socket.

mod driver;
pub(super) mod error;
pub(super) mod examine;
mod handle;
pub(super) mod handshake;
mod health;
pub(super) mod link;
mod proxy;
mod sentinel;
mod socket;
mod target;

use std::sync::Arc;

pub(super) use self::driver::{ClusterEvent, ClusterEvents};
pub(super) use self::handle::Connection;
pub(super) use self::health::MAX_BACKOFF;
pub(super) use self::sentinel::{NamedMaster, Sentinel};
pub(super) use self::target::Target;
use super::context::RedisContext;

/// Starts a connection on the current runtime; it ends when it is closed. A connection to a node of a
/// cluster reports to `events`.
pub(super) fn start(
    target: Target,
    shared: Arc<RedisContext>,
    events: Option<ClusterEvents>,
) -> Arc<Connection> {
    let connection = Arc::new(Connection::new(target, shared));
    tokio::spawn(driver::run(connection.clone(), events));
    connection
}
