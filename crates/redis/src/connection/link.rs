//! An open connection to Redis: the client of its protocol, and probes of how fast the server answers.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{AsyncStream, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, RedisConnectionInfo, RedisResult, Value,
    from_redis_value_ref,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::context::RedisContext;
use weir_limit::{Micros, SECOND};

pub(super) type Socket = Pin<Box<dyn AsyncStream + Send>>;

/// An open connection. It ends with its last clone.
#[derive(Clone, Debug)]
pub(crate) struct Link {
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

    pub(super) async fn log_in(socket: Socket, login: &RedisConnectionInfo) -> RedisResult<Link> {
        // A round trip has its own timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (client, driver) =
            MultiplexedConnection::new_with_config(login, socket, config).await?;
        Ok(Link { client, task: Arc::new(Task(tokio::spawn(driver))) })
    }

    pub async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.client).await
    }

    /// Sends commands. An error of the server is a reply.
    pub async fn send_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.client.send_packed_commands(commands, 0, commands.len()).await
    }

    /// Returns the client, which does not keep the connection open.
    pub fn client(&self) -> MultiplexedConnection {
        self.client.clone()
    }
}

/// Parses the reply to `TIME`; none if it is not Redis's: Envoy's redis_proxy has the whole time in the microseconds.
pub(crate) fn parse_time(reply: &Value) -> Option<Micros> {
    let (seconds, micros): (u64, u64) = from_redis_value_ref(reply).ok()?;
    (micros < SECOND).then(|| seconds.checked_mul(SECOND)?.checked_add(micros))?
}

/// A server that has not answered for this long is disconnected.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) const MIN_BACKOFF: Duration = Duration::from_millis(20);

pub(crate) const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// A reply, by when it came.
pub(super) enum Timed<T> {
    InTime(T),
    /// The reply came later than `slow_after`.
    Late(T),
    /// No reply came within [`STALL_TIMEOUT`] after `slow_after`.
    Stalled,
}

/// Waits for a reply; calls `on_slow` as soon as it takes longer than `slow_after`.
pub(super) async fn watch<T>(
    reply: impl Future<Output = T>,
    slow_after: Duration,
    on_slow: impl FnOnce(),
) -> Timed<T> {
    let mut reply = pin!(reply);
    if let Ok(reply) = timeout(slow_after, &mut reply).await {
        return Timed::InTime(reply);
    }
    on_slow();
    match timeout(STALL_TIMEOUT, reply).await {
        Ok(reply) => Timed::Late(reply),
        Err(_) => Timed::Stalled,
    }
}

/// Sends a command that a server answers at once if it is well.
pub(super) async fn probe(link: &mut Link, shared: &RedisContext) -> RedisResult<()> {
    if !shared.is_proxy {
        return link.query(&redis::cmd("PING")).await;
    }
    // A proxy answers PING itself.
    let key = format!("{}{{probe}}", shared.options.prefix);
    match link.query(redis::cmd("EVAL").arg("return 1").arg(1).arg(key)).await {
        // One of several servers fails, and its keys with it.
        Err(error) if error.code().is_some() => Ok(()),
        replied => replied,
    }
}

/// Sends a probe, and waits for long; an error reply is a late answer.
pub(super) async fn timed_probe(link: &mut Link, shared: &RedisContext) -> Timed<RedisResult<()>> {
    let (sent, slow_after) = (Instant::now(), shared.options.slow_after);
    match timeout(STALL_TIMEOUT.max(slow_after), probe(link, shared)).await {
        Ok(Ok(())) if sent.elapsed() <= slow_after => Timed::InTime(Ok(())),
        Ok(reply) => Timed::Late(reply),
        Err(_) => Timed::Stalled,
    }
}
