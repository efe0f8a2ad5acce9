//! The connections of commands that charge nothing, such as those that read or reset a key for operators.
//!
//! A reply may be large, such as a log of sixteen megabytes. On the connections of charges it would delay them, and
//! after a slow round trip such a connection is probed. So there is one more connection to each server that is asked,
//! opened at the first command. It is kept while it is used, until a command gets no reply in time, the server turns
//! out to be a replica, or a connection of charges goes down: the server may be a replica by then.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisResult, ServerError, ServerErrorKind};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::connection::error::ConnectError;
use crate::connection::handshake::ends_session;
use crate::connection::target::Target;
use crate::context::RedisContext;
use crate::refusal::{store_error, words_of};
use crate::round_trip::Link;
use weir_store::StoreError;

/// The most commands about states at a time, as their replies may be large; further ones wait.
const MAX_STATE_COMMANDS: usize = 4;

/// How long an unused connection is kept: what is between it and the server may have ended it after a longer silence.
const MAX_IDLE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct AdminConnections {
    shared: Arc<RedisContext>,
    open: Mutex<Vec<AdminConnection>>,
    pub state_commands: Semaphore,
}

#[derive(Debug)]
struct AdminConnection {
    target: Target,
    link: Link,
    /// How often connections of charges had gone down when it was opened.
    failures: u64,
    used: Instant,
}

impl AdminConnections {
    pub fn new(shared: Arc<RedisContext>) -> AdminConnections {
        let state_commands = Semaphore::new(MAX_STATE_COMMANDS);
        AdminConnections { shared, open: Mutex::default(), state_commands }
    }

    fn close(&self, target: &Target) {
        self.open.lock().retain(|open| open.target != *target);
    }

    /// Returns the error of a command that a server refused. Logs one without a kind of its own.
    pub fn refused(&self, server: &Target, error: &ServerError) -> StoreError {
        let text = words_of(&error.clone().into());
        let failed = store_error(&text);
        if failed == StoreError::Unavailable {
            self.shared.log.command_failed(&text);
        }
        // It may be about the connection, such as its login, or the server has become a replica.
        if matches!(failed, StoreError::Unavailable | StoreError::ReadOnly) {
            self.close(server);
        }
        failed
    }

    /// Returns the reply of a server to what `ask` sends, which may be an error; fails if none comes by `end`.
    pub async fn ask<T, F: Future<Output = RedisResult<T>>>(
        &self,
        target: &Target,
        end: Instant,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<RedisResult<T>, StoreError> {
        let asked = async {
            let link = self.link(target).await?;
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
            self.close(target);
        }
        reply
    }

    async fn link(&self, target: &Target) -> Result<Link, StoreError> {
        let failures = self.shared.counts.down.load(Ordering::Relaxed);
        {
            let (mut open, now) = (self.open.lock(), Instant::now());
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
        self.close(target);
        let (target, used) = (target.clone(), Instant::now());
        let opened = AdminConnection { target, link: link.clone(), failures, used };
        self.open.lock().push(opened);
        Ok(link)
    }
}
