//! The phases of the running service.
//!
//! ```text
//! Starting ──▶ Serving ──stop──▶ Draining ──▶ Closing ──▶ Stopped
//!                 │                  │                       ▲
//!                 └──────────────────┴── the servers ended ──┘
//! ```
//!
//! | Phase | Health reports | Listeners | Ends |
//! | --- | --- | --- | --- |
//! | Starting | not serving | bound: clients queue | when all threads have started |
//! | Serving | serving, once there are rules and the store has answered | open | at a signal to stop |
//! | Draining | not serving | open | after `drain.delay`; at once for [`Stop::Now`] |
//! | Closing | not serving | closed | when all requests have ended, at the latest after `drain.timeout` |
//! | Stopped | | | |
//!
//! [`App::start`](super::App::start) is the phase of starting. If the servers end in a phase before
//! Closing, a thread failed.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Stop;
use crate::health::Health;

/// A phase after Starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining(Stop),
    Closing,
    Stopped,
}

/// What the phases act on.
#[derive(Debug)]
pub(super) struct Lifecycle {
    pub health: Arc<Health>,
    pub drain_delay: Duration,
    pub drain_timeout: Duration,
    /// Turns true to close the listeners.
    pub close: watch::Sender<bool>,
}

impl Lifecycle {
    /// Goes through the phases from Serving to Stopped. `servers` resolves when all servers have
    /// ended, `stop` when the service is to stop.
    ///
    /// # Errors
    ///
    /// A server failed.
    pub async fn run(
        &self,
        servers: impl Future<Output = anyhow::Result<()>>,
        stop: impl Future<Output = Stop>,
    ) -> anyhow::Result<()> {
        let (mut servers, mut stop) = (pin!(servers), pin!(stop));
        let mut phase = Phase::Serving;
        while phase != Phase::Stopped {
            phase = match phase {
                Phase::Serving => serve(servers.as_mut(), stop.as_mut()).await?,
                Phase::Draining(stop) => self.drain(servers.as_mut(), stop).await?,
                Phase::Closing => self.close(servers.as_mut()).await?,
                Phase::Stopped => Phase::Stopped,
            };
        }
        tracing::info!("stopped");
        Ok(())
    }

    /// Lets load balancers notice that the service stops, while requests are still served.
    async fn drain(
        &self,
        servers: Pin<&mut impl Future<Output = anyhow::Result<()>>>,
        stop: Stop,
    ) -> anyhow::Result<Phase> {
        self.health.drain();
        if stop == Stop::Now {
            return Ok(Phase::Closing);
        }
        tracing::info!(delay = ?self.drain_delay, "draining: health reports not serving");
        tokio::select! {
            ended = servers => ended.map(|()| Phase::Stopped),
            () = sleep(self.drain_delay) => Ok(Phase::Closing),
        }
    }

    /// Closes the listeners and waits for requests in flight.
    async fn close(
        &self,
        servers: Pin<&mut impl Future<Output = anyhow::Result<()>>>,
    ) -> anyhow::Result<Phase> {
        self.close.send_replace(true);
        self.health.close();
        tracing::info!("draining: listeners are closed");
        match timeout(self.drain_timeout, servers).await {
            Ok(ended) => ended?,
            Err(_) => tracing::warn!(
                timeout = ?self.drain_timeout,
                "requests in flight did not end in time"
            ),
        }
        Ok(Phase::Stopped)
    }
}

async fn serve(
    servers: Pin<&mut impl Future<Output = anyhow::Result<()>>>,
    stop: Pin<&mut impl Future<Output = Stop>>,
) -> anyhow::Result<Phase> {
    tokio::select! {
        ended = servers => ended.map(|()| Phase::Stopped),
        stop = stop => Ok(Phase::Draining(stop)),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    const DELAY: Duration = Duration::from_secs(5);
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn lifecycle() -> (Lifecycle, watch::Receiver<bool>) {
        let (close, closed) = watch::channel(false);
        let health = Arc::new(Health::new(false, false));
        health.store_answers();
        (Lifecycle { health, drain_delay: DELAY, drain_timeout: TIMEOUT, close }, closed)
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_stay_open_for_the_delay_after_health_fails() {
        let (lifecycle, mut closed) = lifecycle();
        let (start, health) = (Instant::now(), lifecycle.health.clone());
        let servers = async move {
            sleep(DELAY / 2).await;
            assert!(!health.is_serving() && !*closed.borrow());
            closed.wait_for(|closed| *closed).await?;
            assert_eq!(start.elapsed(), DELAY);
            Ok(())
        };
        assert!(lifecycle.health.is_serving());
        lifecycle.run(servers, ready(Stop::Gently)).await.unwrap();
        assert_eq!(start.elapsed(), DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_now_skips_the_delay_and_waits_for_requests_until_the_timeout() {
        let (lifecycle, closed) = lifecycle();
        let start = Instant::now();
        lifecycle.run(pending(), ready(Stop::Now)).await.unwrap();
        assert_eq!(start.elapsed(), TIMEOUT);
        assert!(*closed.borrow() && !lifecycle.health.is_serving());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_fails_ends_any_phase() {
        for (stop, fails_after) in [
            (None, Duration::from_secs(1)),
            (Some(Stop::Gently), DELAY / 2),
            (Some(Stop::Gently), DELAY + TIMEOUT / 2),
        ] {
            let (lifecycle, _closed) = lifecycle();
            let start = Instant::now();
            let servers = async {
                sleep(fails_after).await;
                anyhow::bail!("a thread failed")
            };
            let stop = async {
                match stop {
                    Some(stop) => stop,
                    None => pending().await,
                }
            };
            assert!(lifecycle.run(servers, stop).await.is_err());
            assert_eq!(start.elapsed(), fails_after);
        }
    }
}
