//! Commands that are no charges: of operators, and about what replicas share.
//!
//! A reply may be large, such as a log of sixteen megabytes. On the connections of charges it would delay them, and
//! after a slow round trip such a connection is probed. So there is one more connection to each server that is asked,
//! opened at the first command. It is kept while it is used, until a command gets no reply in time, the server turns
//! out to be a replica, or a connection of charges goes down: the server may be a replica by then.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{
    Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerError, ServerErrorKind, ToRedisArgs,
    Value,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::cluster::MAX_HOPS;
use super::connection::Target;
use super::connection::error::ConnectError;
use super::connection::handshake::ends_session;
use super::connection::link::Link;
use super::options::Clock;
use super::refusal::{store_error, words};
use super::round_trip::redirect_kind;
use super::store::{RedisStore, ThreadConnections};
use weir_limit::Micros;
use weir_store::StoreError;

/// The most commands about states at a time, as their replies may be large; further ones wait.
const MAX_STATE_COMMANDS: usize = 4;

/// How long an unused connection is kept: what is between it and the server may have ended it after a longer silence.
const MAX_IDLE: Duration = Duration::from_secs(10);

/// The wait before a command is sent again while a cluster changes.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct AdminConnections {
    open: Mutex<Vec<AdminConnection>>,
    state_commands: Semaphore,
}

#[derive(Debug)]
struct AdminConnection {
    target: Target,
    link: Link,
    /// How often connections of charges had gone down when it was opened.
    failures: u64,
    used: Instant,
}

/// Returns the command that runs a script, without the script's arguments. The text and not its hash is sent: it is
/// short, and `SCRIPT LOAD` needs a permission of its own.
pub(super) fn eval<K: ToRedisArgs>(script: &str, keys: &[K]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(keys.len()).arg(keys);
    command
}

pub(super) fn is_moved(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Moved)
}

impl AdminConnections {
    pub fn new() -> AdminConnections {
        let state_commands = Semaphore::new(MAX_STATE_COMMANDS);
        AdminConnections { open: Mutex::default(), state_commands }
    }

    fn close(&self, target: &Target) {
        self.open.lock().retain(|open| open.target != *target);
    }
}

impl RedisStore {
    /// Sends what `ask` sends to the server of a slot. Returns the reply, or an error of the server; fails if that
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
        let reply = self.ask_target(&target, Instant::now() + limit, ask).await?;
        if reply.as_ref().is_err_and(is_moved) {
            connections.refresh_soon();
        }
        Ok(reply)
    }

    /// Sends a command about the state of a key, and follows redirects within a cluster. Returns its reply, unless that
    /// is an error or takes longer than `budget`.
    pub(super) async fn ask_about_state(
        &self,
        slot: u16,
        command: &Cmd,
        budget: Duration,
    ) -> Result<Value, StoreError> {
        let end = Instant::now() + budget;
        let replied = async {
            // It is never closed.
            let permit = self.admin.state_commands.acquire().await;
            let _permit = permit.map_err(|_| StoreError::Unavailable)?;
            self.follow(slot, command, end).await
        };
        timeout(budget, replied).await.unwrap_or(Err(StoreError::TimedOut))
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
            let replies = self.ask_target(&target, end, send).await?.map_err(|error| {
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
                return Err(self.refused(&target, &error));
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

    /// Returns the error of a command that a server refused. Logs one without a kind of its own.
    fn refused(&self, server: &Target, error: &ServerError) -> StoreError {
        let text = words(error);
        let failed = store_error(&text);
        if failed == StoreError::Unavailable {
            self.shared.log.command_failed(&text);
        }
        // It may be about the connection, such as its login, or the server has become a replica.
        if matches!(failed, StoreError::Unavailable | StoreError::ReadOnly) {
            self.admin.close(server);
        }
        failed
    }

    async fn ask_target<T, F: Future<Output = RedisResult<T>>>(
        &self,
        target: &Target,
        end: Instant,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<RedisResult<T>, StoreError> {
        let asked = async {
            let link = self.admin_link(target).await?;
            Ok(ask(link.client()).await)
        };
        let reply = timeout_at(end, asked).await.unwrap_or(Err(StoreError::TimedOut));
        let ends = match &reply {
            Ok(Ok(_)) => false,
            Ok(Err(error)) => {
                ends_session(error) || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
            }
            Err(_) => true,
        };
        if ends {
            self.admin.close(target);
        }
        reply
    }

    async fn admin_link(&self, target: &Target) -> Result<Link, StoreError> {
        let failures = self.shared.counts.down.load(Ordering::Relaxed);
        {
            let (mut open, now) = (self.admin.open.lock(), Instant::now());
            open.retain(|connection| {
                let is_fresh = now.duration_since(connection.used) < MAX_IDLE;
                is_fresh && connection.failures == failures && connection.link.is_open()
            });
            let found = open.iter_mut().find(|connection| connection.target == *target);
            if let Some(connection) = found {
                connection.used = now;
                return Ok(connection.link.clone());
            }
        }
        let connected = target.connect(&self.shared).await;
        let (link, _) = connected.map_err(|error| match error {
            ConnectError::TimedOut(_) => StoreError::TimedOut,
            error => error.store_error(),
        })?;
        // Of two that were opened at once, one is kept.
        self.admin.close(target);
        let (target, used) = (target.clone(), Instant::now());
        let opened = AdminConnection { target, link: link.clone(), failures, used };
        self.admin.open.lock().push(opened);
        Ok(link)
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
            Clock::Server => 0,
            Clock::Caller => self.shared.options.wall.now(),
        }
    }
}
