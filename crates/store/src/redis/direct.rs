//! Single commands of operators, each over a connection of its own.
//!
//! A reply may be large, such as a log of sixteen megabytes. On the connections of requests it would
//! delay charges, and after a slow round trip such a connection is probed.

use std::time::Duration;

use redis::{Cmd, Pipeline, ServerError, Value};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::cluster::Cluster;
use super::connection::error::ConnectError;
use super::connection::{Link, Target};
use super::context::RedisContext;
use super::round_trip::{RedirectKind, store_error};
use crate::StoreError;

/// The most connections at a time; further commands wait.
const MAX_CONNECTIONS: usize = 4;

/// The most redirects that a command follows.
const MAX_HOPS: u8 = 5;

/// The wait before a command is sent again while a cluster changes.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Where a command goes.
pub(super) enum Destination<'c> {
    Server(Target),
    /// The node that serves a slot.
    Slot(&'c Cluster, u16),
}

impl Destination<'_> {
    /// Connects to the server.
    ///
    /// # Errors
    ///
    /// It is not known, or it cannot be reached.
    pub async fn connect(&self, shared: &RedisContext) -> Result<Link, StoreError> {
        connect(shared, &self.target()?).await
    }

    fn target(&self) -> Result<Target, StoreError> {
        match self {
            Destination::Server(target) => Ok(target.clone()),
            Destination::Slot(cluster, slot) => {
                cluster.target(*slot).ok_or(StoreError::Unavailable)
            }
        }
    }
}

/// Sends commands, and bounds their connections.
#[derive(Debug)]
pub(super) struct DirectConnections(Semaphore);

impl DirectConnections {
    pub fn new() -> DirectConnections {
        DirectConnections(Semaphore::new(MAX_CONNECTIONS))
    }

    /// Sends a command, and follows redirects within a cluster. Returns its reply.
    ///
    /// # Errors
    ///
    /// The server does not reply within `budget`, or replies with an error.
    pub async fn send(
        &self,
        shared: &RedisContext,
        to: Destination<'_>,
        command: &Cmd,
        budget: Duration,
    ) -> Result<Value, StoreError> {
        let replied = async {
            // It is never closed.
            let _permit = self.0.acquire().await.map_err(|_| StoreError::Unavailable)?;
            follow(shared, &to, command).await
        };
        timeout(budget, replied).await.unwrap_or(Err(StoreError::TimedOut))
    }
}

/// Sends a command to its destination, and on to where that redirects it. Waits while the cluster
/// changes, for as long as the caller does.
async fn follow(
    shared: &RedisContext,
    to: &Destination<'_>,
    command: &Cmd,
) -> Result<Value, StoreError> {
    let (mut target, mut asking, mut hops) = (to.target()?, false, 0);
    loop {
        let error = match send(shared, &target, command, asking).await? {
            Value::ServerError(error) => error,
            reply => return Ok(reply),
        };
        let (cluster, node, kind) = match (to, &target, RedirectKind::of(&error)) {
            (Destination::Slot(cluster, _), Target::Node(node), Some(kind)) => {
                (cluster, node, kind)
            }
            _ => return Err(refused(shared, &error)),
        };
        if kind == RedirectKind::TryAgain {
            sleep(RETRY_INTERVAL).await;
        } else if let Some(next) = cluster.redirected(node, &error) {
            hops += 1;
            if hops > MAX_HOPS {
                return Err(StoreError::Unavailable);
            }
            (target, asking) = (next, kind == RedirectKind::Ask);
        } else {
            // The nodes are read again meanwhile.
            sleep(RETRY_INTERVAL).await;
            (target, asking) = (to.target()?, false);
        }
    }
}

/// Returns the error of a command that a server refused. Logs one without a kind of its own.
fn refused(shared: &RedisContext, error: &ServerError) -> StoreError {
    let failed = store_error(error);
    if failed == StoreError::Unavailable {
        shared.log.command_failed(error);
    }
    failed
}

/// Connects to a server.
async fn connect(shared: &RedisContext, target: &Target) -> Result<Link, StoreError> {
    let connected = target.connect(shared).await;
    let (link, _) = connected.map_err(|error| match error {
        ConnectError::Replica => StoreError::ReadOnly,
        ConnectError::TimedOut(_) => StoreError::TimedOut,
        _ => StoreError::Unavailable,
    })?;
    Ok(link)
}

/// Sends a command over a new connection. An error of the server is a reply.
async fn send(
    shared: &RedisContext,
    target: &Target,
    command: &Cmd,
    asking: bool,
) -> Result<Value, StoreError> {
    let mut link = connect(shared, target).await?;
    let mut pipeline = Pipeline::with_capacity(2);
    if asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(command.clone());
    let replies = link.send_all(&pipeline).await;
    let mut replies = replies.map_err(|error| {
        shared.log.command_failed(&error);
        StoreError::Unavailable
    })?;
    replies.pop().ok_or(StoreError::Corrupt)
}
