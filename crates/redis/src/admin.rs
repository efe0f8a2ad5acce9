//! Sends the commands that charge nothing: `states` reads and resets keys for operators, `shared_table` and
//! `replica_texts` exchange what replicas share.

pub(super) mod connections;

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, ToRedisArgs, Value,
};
use tokio::time::{Instant, sleep, timeout};

use super::cluster::MAX_HOPS;
use super::connection::target::Target;
use super::options::ClockSource;
use super::round_trip::redirect_kind;
use super::store::{RedisStore, ThreadConnections};
use weir_limit::Micros;
use weir_store::StoreError;

/// The wait before a command is sent again while a cluster changes.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the `EVAL` of a script, without the script's arguments. The text and not its hash is sent: it is short, and
/// `SCRIPT LOAD` needs a permission of its own.
pub(super) fn eval<K: ToRedisArgs>(script: &str, keys: &[K]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(keys.len()).arg(keys);
    command
}

pub(super) fn is_moved(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Moved)
}

impl RedisStore {
    /// Lets `ask` send commands to the server of a slot. Returns the reply, or an error of the server; fails if that
    /// cannot be reached, or does not reply within `limit`.
    pub(super) async fn ask_server<T, F: Future<Output = RedisResult<T>>>(
        &self,
        slot: u16,
        limit: Duration,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<RedisResult<T>, StoreError> {
        let connections = self.connections.iter().find_map(OnceLock::get);
        let connections = connections.ok_or(StoreError::Unavailable)?;
        let target = connections.target(slot).ok_or(StoreError::Unavailable)?;
        let reply = self.admin.ask(&target, Instant::now() + limit, ask).await?;
        if let ThreadConnections::Cluster(cluster) = connections
            && reply.as_ref().is_err_and(is_moved)
        {
            cluster.refresh_soon();
        }
        Ok(reply)
    }

    /// Sends a command about the state of a key, and follows redirects within a cluster. Returns its reply, unless that
    /// is an error or takes longer than `max_wait`.
    pub(super) async fn ask_about_state(
        &self,
        slot: u16,
        command: &Cmd,
        max_wait: Duration,
    ) -> Result<Value, StoreError> {
        let end = Instant::now() + max_wait;
        let replied = async {
            // It is never closed.
            let permit = self.admin.state_commands.acquire().await;
            let _permit = permit.map_err(|_| StoreError::Unavailable)?;
            self.follow(slot, command, end).await
        };
        timeout(max_wait, replied).await.unwrap_or(Err(StoreError::TimedOut))
    }

    /// Sends a command to the server of a slot, and on to where that redirects it. Waits while the cluster changes.
    async fn follow(&self, slot: u16, command: &Cmd, end: Instant) -> Result<Value, StoreError> {
        // Those of any thread, as all of them know the servers.
        let known = self.connections.iter().find_map(OnceLock::get);
        let connections = known.unwrap_or_else(|| self.connections());
        let server = || connections.target(slot).ok_or(StoreError::Unavailable);
        let (mut target, mut asking, mut hops) = (server()?, false, 0);
        loop {
            let mut commands = Pipeline::with_capacity(2);
            if asking {
                commands.cmd("ASKING");
            }
            commands.add_command(command.clone());
            let count = commands.len();
            let send = |mut link: MultiplexedConnection| async move {
                link.send_packed_commands(&commands, 0, count).await
            };
            let replies = self.admin.ask(&target, end, send).await?.map_err(|error| {
                self.shared.log.command_failed(&error);
                StoreError::Unavailable
            })?;
            let error = match replies.into_iter().next_back().ok_or(StoreError::Corrupt)? {
                Value::ServerError(error) => error,
                reply => return Ok(reply),
            };
            let (ThreadConnections::Cluster(cluster), Target::Node(node), Some(kind)) =
                (connections, &target, redirect_kind(&error))
            else {
                return Err(self.admin.refused(&target, &error));
            };
            if kind == ServerErrorKind::TryAgain {
                sleep(RETRY_INTERVAL).await;
            } else if let Some(next) = cluster.redirected(node, &error) {
                hops += 1;
                if hops > MAX_HOPS {
                    return Err(StoreError::Unavailable);
                }
                (target, asking) = (next, kind == ServerErrorKind::Ask);
            } else {
                // The nodes are read again meanwhile.
                sleep(RETRY_INTERVAL).await;
                (target, asking) = (server()?, false);
            }
        }
    }

    /// Waits until a connection to the server of a slot is up, or could not be made.
    pub(super) async fn server_tried(&self, slot: u16) {
        let mut changed = self.shared.changed.subscribe();
        let all = || self.connections.iter().filter_map(OnceLock::get);
        // It cannot fail: this store holds the sender.
        let _ = changed.wait_for(|()| all().any(|connections| connections.has_tried(slot))).await;
    }

    /// Returns the time that scripts go by; 0 for that of the server.
    pub(super) fn script_time(&self) -> Micros {
        match self.shared.options.clock {
            ClockSource::Server => 0,
            ClockSource::Caller => self.shared.options.wall.now(),
        }
    }
}
