//! Pings that find out whether a client is still there.

use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use h2::server::Connection;
use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};

use crate::random::random;

/// Pings the client of one connection at intervals.
pub(super) struct KeepAlive {
    /// None where pings are off.
    pings: Option<PingPong>,
    interval: Duration,
    timeout: Duration,
}

impl KeepAlive {
    pub fn new<T: AsyncRead + AsyncWrite + Unpin>(
        h2: &mut Connection<T, Bytes>,
        interval: Duration,
        timeout: Duration,
    ) -> KeepAlive {
        let pings = if interval.is_zero() { None } else { h2.ping_pong() };
        KeepAlive { pings, interval, timeout }
    }

    /// Ends when the client does not answer a ping, or does not read it, in time.
    pub async fn run(self) {
        let Some(mut pings) = self.pings else { return pending().await };
        loop {
            // Connections that were opened together are pinged at different times.
            sleep(self.interval.mul_f64(0.5 + random() / 2.0)).await;
            if !matches!(timeout(self.timeout, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
                return;
            }
        }
    }
}
