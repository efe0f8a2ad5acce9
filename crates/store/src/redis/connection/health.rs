//! The health of a server: how fast it answers.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use redis::Cmd;
use tokio::time::{Instant, sleep, timeout};

use super::link::Link;
use crate::redis::context::RedisContext;

/// A server that has not answered for this long is disconnected.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The first wait between two attempts.
const MIN_BACKOFF: Duration = Duration::from_millis(20);

/// The longest wait between two attempts.
pub(in super::super) const MAX_BACKOFF: Duration = Duration::from_millis(500);

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

/// A command that a server answers at once if it is well.
#[derive(Debug)]
pub(super) struct Probe {
    command: Cmd,
    is_proxy: bool,
}

impl Probe {
    pub fn new(shared: &RedisContext) -> Probe {
        let is_proxy = shared.is_proxy;
        let mut command = redis::cmd(if is_proxy { "EVAL" } else { "PING" });
        if is_proxy {
            // A proxy answers PING itself.
            command.arg("return 1").arg(1).arg(format!("{}{{probe}}", shared.options.prefix));
        }
        Probe { command, is_proxy }
    }

    pub async fn send(&self, link: &mut Link) -> redis::RedisResult<()> {
        match link.query(&self.command).await {
            // One of several servers fails, and its keys with it.
            Err(error) if self.is_proxy && error.code().is_some() => Ok(()),
            replied => replied,
        }
    }

    /// Sends the probe, and waits for long; an error reply is a late answer.
    pub async fn send_timed(
        &self,
        link: &mut Link,
        slow_after: Duration,
    ) -> Timed<redis::RedisResult<()>> {
        let sent = Instant::now();
        match timeout(STALL_TIMEOUT.max(slow_after), self.send(link)).await {
            Ok(Ok(())) if sent.elapsed() <= slow_after => Timed::InTime(Ok(())),
            Ok(reply) => Timed::Late(reply),
            Err(_) => Timed::Stalled,
        }
    }
}

/// Waits between attempts that double from [`MIN_BACKOFF`] up to [`MAX_BACKOFF`].
#[derive(Debug)]
pub(super) struct ProbeBackoff(Duration);

impl ProbeBackoff {
    pub fn new() -> ProbeBackoff {
        ProbeBackoff(MIN_BACKOFF)
    }

    pub fn reset(&mut self) {
        self.0 = MIN_BACKOFF;
    }

    pub async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(MAX_BACKOFF);
    }
}
