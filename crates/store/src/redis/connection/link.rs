//! An open connection: the client of the Redis protocol.

use std::future::Future;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, RedisConnectionInfo, RedisResult, Value,
    from_redis_value_ref,
};
use tokio::task::JoinHandle;

use super::socket::Socket;
use weir_limit::{Micros, SECOND};

/// An open connection. It ends with its last clone.
#[derive(Clone, Debug)]
pub(in super::super) struct Link {
    client: MultiplexedConnection,
    task: Arc<Task>,
}

/// The task of a connection, which ends with it.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// Returns whether the server has not closed the connection, as far as is known.
    pub fn is_open(&self) -> bool {
        !self.task.0.is_finished()
    }

    /// Logs in over a socket.
    pub(super) async fn log_in(socket: Socket, login: &RedisConnectionInfo) -> RedisResult<Link> {
        // A round trip has its own timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (client, driver) =
            MultiplexedConnection::new_with_config(login, socket, config).await?;
        Ok(Link { client, task: Arc::new(Task(tokio::spawn(driver))) })
    }

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// The server replies with an error, or not at all.
    pub async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.client).await
    }

    /// Sends commands. An error of the server is a reply.
    ///
    /// # Errors
    ///
    /// The server does not reply.
    pub async fn send_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.client.send_packed_commands(commands, 0, commands.len()).await
    }

    /// Sends what `ask` sends.
    ///
    /// # Errors
    ///
    /// The server replies with an error, or not at all.
    pub async fn ask<T, F: Future<Output = RedisResult<T>>>(
        &self,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> RedisResult<T> {
        ask(self.client.clone()).await
    }
}

/// Parses the reply to `TIME`; none if it is not one of Redis. That of Envoy's redis_proxy has the whole time in
/// its microseconds.
pub(in super::super) fn parse_time(reply: &Value) -> Option<Micros> {
    let (seconds, micros): (u64, u64) = from_redis_value_ref(reply).ok()?;
    (micros < SECOND).then(|| seconds.checked_mul(SECOND)?.checked_add(micros))?
}
