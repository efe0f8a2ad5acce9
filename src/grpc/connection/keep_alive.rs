//! What happens to a connection with time: pings that find out whether the client is still there,
//! and the connection's age.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::Connection;
use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};

use super::super::Limits;
use weir_common::random::random;

/// The longest interval between two pings.
const PING_INTERVAL: Duration = Duration::from_secs(60);

/// Pings the client of one connection at intervals, and watches the connection's age. Both share one
/// timer, because it is polled with each read.
pub(super) struct KeepAlive {
    pings: Option<PingPong>,
    timeout: Duration,
    /// When the connection is old; none if it never is.
    old_at: Option<Instant>,
}

impl KeepAlive {
    pub fn new<T: AsyncRead + AsyncWrite + Unpin>(
        h2: &mut Connection<T, Bytes>,
        limits: &Limits,
    ) -> KeepAlive {
        let Limits { timeout, max_age, .. } = *limits;
        // Connections that were opened together close at different times.
        let old_at = jittered(max_age, random()).and_then(|age| Instant::now().checked_add(age));
        KeepAlive { pings: h2.ping_pong(), timeout, old_at }
    }

    /// Sets `is_old` at the maximum age. Ends when the client does not answer a ping, or does not
    /// read it, in time.
    pub async fn run(mut self, is_old: &AtomicBool) {
        loop {
            // Connections that were opened together are pinged at different times.
            let wait = PING_INTERVAL.mul_f64(0.5 + random() / 2.0);
            let ping_at = self.pings.as_ref().and_then(|_| Instant::now().checked_add(wait));
            if let Some(old_at) =
                self.old_at.take_if(|old_at| ping_at.is_none_or(|at| *old_at < at))
            {
                sleep_until(old_at).await;
                is_old.store(true, Ordering::Relaxed);
            }
            let (Some(pings), Some(ping_at)) = (&mut self.pings, ping_at) else {
                return pending().await;
            };
            sleep_until(ping_at).await;
            if !matches!(timeout(self.timeout, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
                return;
            }
        }
    }
}

/// Returns an age between 90 % and 110 % of `age`, by a number from 0 to 1; none if it is unlimited.
fn jittered(age: Duration, random: f64) -> Option<Duration> {
    let seconds = age.as_secs_f64() * (0.9 + random / 5.0);
    Duration::try_from_secs_f64(seconds).ok().filter(|_| age != Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_age_has_a_jitter_of_ten_percent() {
        let age = |random| jittered(Duration::from_secs(100), random);
        assert_eq!(age(0.0), Some(Duration::from_secs(90)));
        assert_eq!(age(0.5), Some(Duration::from_secs(100)));
        assert_eq!(jittered(Duration::MAX, 0.0), None);
    }
}
