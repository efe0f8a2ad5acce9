//! An open connection: the client of the Redis protocol, over a socket whose replies are measured.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, RedisConnectionInfo, RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;

use super::replies::{Meter, Replies};
use super::socket::Socket;

/// The most replies of a login.
const LOGIN_REPLIES: usize = 16;

/// An open connection. It ends with its last clone.
#[derive(Clone, Debug)]
pub(in super::super) struct Link {
    client: MultiplexedConnection,
    meter: Arc<Meter>,
    _task: Arc<Task>,
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
    /// Logs in over a socket.
    pub(super) async fn log_in(socket: Socket, login: &RedisConnectionInfo) -> RedisResult<Link> {
        let meter = Arc::new(Meter::new());
        let measured = Measured { socket, replies: Replies::default(), meter: meter.clone() };
        // A round trip has its own timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let in_flight = meter.allow(LOGIN_REPLIES, 0);
        let connected = MultiplexedConnection::new_with_config(login, measured, config).await;
        in_flight.finish();
        let (client, driver) = connected.map_err(|error| meter.explain(error))?;
        Ok(Link { client, meter, _task: Arc::new(Task(tokio::spawn(driver))) })
    }

    /// Sends a command whose reply takes up to `bytes`.
    ///
    /// # Errors
    ///
    /// The server replies with an error, with more, or not at all.
    pub async fn query<T: FromRedisValue>(
        &mut self,
        bytes: usize,
        command: &Cmd,
    ) -> RedisResult<T> {
        let in_flight = self.meter.allow(1, bytes);
        let replied = command.query_async(&mut self.client).await;
        in_flight.finish();
        replied.map_err(|error| self.meter.explain(error))
    }

    /// Sends commands whose replies together take up to `bytes`.
    ///
    /// # Errors
    ///
    /// The server replies with more, or not at all.
    pub async fn send_all(&mut self, bytes: usize, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let in_flight = self.meter.allow(commands.len(), bytes);
        let replied = self.client.send_packed_commands(commands, 0, commands.len()).await;
        in_flight.finish();
        replied.map_err(|error| self.meter.explain(error))
    }

    /// Sends what `ask` sends, up to `replies` commands whose replies together take up to `bytes`.
    ///
    /// # Errors
    ///
    /// The server replies with an error, with more, or not at all.
    pub async fn ask<T, F: Future<Output = RedisResult<T>>>(
        &self,
        replies: usize,
        bytes: usize,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> RedisResult<T> {
        let in_flight = self.meter.allow(replies, bytes);
        let replied = ask(self.client.clone()).await;
        in_flight.finish();
        replied.map_err(|error| self.meter.explain(error))
    }
}

/// A socket whose replies are measured before they are parsed.
struct Measured {
    socket: Socket,
    replies: Replies,
    meter: Arc<Meter>,
}

impl AsyncRead for Measured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Measured { socket, replies, meter } = &mut *self;
        let before = buffer.filled().len();
        ready!(socket.as_mut().poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        Poll::Ready(replies.measure(read, meter))
    }
}

impl AsyncWrite for Measured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.socket.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.as_mut().poll_shutdown(context)
    }
}
