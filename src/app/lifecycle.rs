//! The phases of the running service, which `App::run` goes through.
//!
//! ```text
//! Starting ──▶ Serving ──stop──▶ Draining ──▶ Closing ──▶ Flushing ──▶ Stopped
//!                 │                  │           │            ▲
//!                 └──────────────────┴───────────┴── ended ───┘
//! ```
//!
//! | Phase | Health reports | Listeners | Ends |
//! | --- | --- | --- | --- |
//! | Starting | not serving | bound: connections are refused | when all threads have started |
//! | Serving | serving, once there are rules and the store has answered | open; those of gRPC and of Redis clients once the rule files were first loaded | at a signal to stop |
//! | Draining | not serving | open | after `drain.delay`; at Ctrl-C ([`Stop::Now`]) without it, once Redis has settled the leases (hits charged ahead of requests) |
//! | Closing | not serving | closed; connections get GOAWAY | when all requests have ended, or [`FLUSH_TIME`] before `drain.timeout` |
//! | Flushing | | | when the [`Flushers`] have ended, at the latest at `drain.timeout` |
//! | Stopped | | | |
//!
//! `drain.timeout` runs from the signal. [`App::start`](super::App::start) is the phase of starting. If the servers,
//! which are the threads of all listeners, end in a phase before Closing, one of these threads failed.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::health::Health;

/// The last part of `drain.timeout`, which requests in flight leave to the flushers, if there are any.
const FLUSH_TIME: Duration = Duration::from_secs(2);

/// Work to do after the last request, such as sending what telemetry has gathered.
#[derive(Default)]
pub(super) struct Flushers(Vec<(&'static str, BoxFuture<'static, ()>)>);

impl Flushers {
    pub fn add(&mut self, name: &'static str, flush: impl Future<Output = ()> + Send + 'static) {
        self.0.push((name, Box::pin(flush)));
    }

    /// Returns how long all work may take, out of the time that is left.
    fn time(&self, left: Duration) -> Duration {
        if self.0.is_empty() { Duration::ZERO } else { FLUSH_TIME.min(left / 4) }
    }

    /// Does all work at the same time, until `deadline`.
    async fn run(self, deadline: Instant) {
        let flush = |(name, flush)| async move {
            if timeout_at(deadline, flush).await.is_err() {
                tracing::warn!(name, "not flushed within drain.timeout");
            }
        };
        join_all(self.0.into_iter().map(flush)).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Serves on for a delay in which load balancers can notice it.
    Drain,
    /// Stops without that delay, as at Ctrl-C.
    Now,
}

pub(super) struct Lifecycle {
    pub health: Arc<Health>,
    pub drain_delay: Duration,
    pub drain_timeout: Duration,
    /// Turns true to close the listeners.
    pub close: watch::Sender<bool>,
    /// Completes once the store has answered what no request waits for. The threads that have sent it do not wait:
    /// each ends with its last connection.
    pub answered: BoxFuture<'static, ()>,
    pub flushers: Flushers,
}

impl Lifecycle {
    /// Goes through the phases from Serving to Stopped. `servers` resolves when all servers have
    /// ended, `stop` when the service is to stop.
    pub async fn run(
        mut self,
        servers: impl Future<Output = anyhow::Result<()>>,
        stop: impl Future<Output = Stop>,
    ) -> anyhow::Result<()> {
        let mut deadline = None;
        let ended = self.serve(pin!(servers), stop, &mut deadline).await;
        let deadline = deadline.unwrap_or_else(|| Instant::now() + FLUSH_TIME);
        self.flushers.run(deadline).await;
        ended.inspect(|()| tracing::info!("stopped"))
    }

    /// Goes through the phases from Serving to Closing. Sets the deadline of stopping when `stop` resolves.
    async fn serve(
        &mut self,
        mut servers: Pin<&mut impl Future<Output = anyhow::Result<()>>>,
        stop: impl Future<Output = Stop>,
        deadline: &mut Option<Instant>,
    ) -> anyhow::Result<()> {
        let stop = tokio::select! {
            ended = servers.as_mut() => return ended,
            stop = stop => stop,
        };
        let signaled = Instant::now();
        *deadline = signaled.checked_add(self.drain_timeout);
        self.health.drain();
        tokio::select! {
            ended = servers.as_mut() => return ended,
            () = self.drained(stop) => {}
        }
        self.close.send_replace(true);
        self.health.close();
        tracing::info!("draining: listeners are closed");
        let left = self.drain_timeout.saturating_sub(signaled.elapsed());
        let closed = timeout(left.saturating_sub(self.flushers.time(left)), servers).await;
        closed.unwrap_or_else(|_| {
            let timeout = self.drain_timeout;
            tracing::warn!(?timeout, "requests in flight did not end in time");
            Ok(())
        })
    }

    /// Lets load balancers notice that the service stops, while requests are still served.
    async fn drained(&mut self, stop: Stop) {
        match stop {
            Stop::Now => {
                let wait = FLUSH_TIME.min(self.drain_timeout / 4);
                let _ = timeout(wait, &mut self.answered).await;
            }
            Stop::Drain => {
                let delay = self.drain_delay;
                tracing::info!(?delay, "draining: health reports not serving");
                sleep(delay).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::Instant;

    use super::*;

    const DELAY: Duration = Duration::from_secs(5);
    const TIMEOUT: Duration = Duration::from_secs(25);

    fn lifecycle() -> (Lifecycle, watch::Receiver<bool>) {
        let (close, closed) = watch::channel(false);
        let health = Arc::new(Health::new(Default::default()));
        health.store_answers();
        let (drain_delay, drain_timeout, flushers) = (DELAY, TIMEOUT, Flushers::default());
        let answered = ready(()).boxed();
        (Lifecycle { health, drain_delay, drain_timeout, close, answered, flushers }, closed)
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
        lifecycle.run(servers, ready(Stop::Drain)).await.unwrap();
        assert_eq!(start.elapsed(), DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_now_skips_the_delay_and_waits_for_requests_until_the_timeout() {
        let (lifecycle, closed) = lifecycle();
        let (start, health) = (Instant::now(), lifecycle.health.clone());
        lifecycle.run(pending(), ready(Stop::Now)).await.unwrap();
        assert_eq!(start.elapsed(), TIMEOUT);
        assert!(*closed.borrow() && !health.is_serving());
    }

    /// Hits that were asked for are known then, and returned.
    #[tokio::test(start_paused = true)]
    async fn stopping_now_waits_a_little_for_what_the_store_has_not_answered() {
        let millis = Duration::from_millis;
        for (answer, wanted) in [(millis(300), millis(300)), (Duration::MAX, FLUSH_TIME)] {
            let (mut lifecycle, mut closed) = lifecycle();
            lifecycle.answered = sleep(answer).boxed();
            let servers = async move {
                closed.wait_for(|closed| *closed).await?;
                Ok(())
            };
            let start = Instant::now();
            lifecycle.run(servers, ready(Stop::Now)).await.unwrap();
            assert_eq!(start.elapsed(), wanted);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_timeout_includes_the_delay() {
        let (lifecycle, _closed) = lifecycle();
        let start = Instant::now();
        lifecycle.run(pending(), ready(Stop::Drain)).await.unwrap();
        assert_eq!(start.elapsed(), TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn telemetry_is_flushed_after_the_last_request_within_the_timeout() {
        // How long requests take after the delay, how long flushing takes, when the service ends,
        // and whether it was flushed.
        let second = Duration::from_secs(1);
        for (requests, flush, end, flushed) in [
            (second, second, DELAY + second * 2, true),
            (Duration::MAX, second, TIMEOUT - FLUSH_TIME + second, true),
            (Duration::MAX, FLUSH_TIME * 2, TIMEOUT, false),
            (second, TIMEOUT, TIMEOUT, false),
        ] {
            let (mut lifecycle, mut closed) = lifecycle();
            let (flush_done, mut was_flushed) = watch::channel(false);
            lifecycle.flushers.add("traces", async move {
                sleep(flush).await;
                flush_done.send_replace(true);
            });
            let servers = async move {
                closed.wait_for(|closed| *closed).await?;
                sleep(requests).await;
                Ok(())
            };
            let start = Instant::now();
            lifecycle.run(servers, ready(Stop::Drain)).await.unwrap();
            assert_eq!((start.elapsed(), *was_flushed.borrow_and_update()), (end, flushed));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn telemetry_is_flushed_after_a_failure() {
        let (mut lifecycle, _closed) = lifecycle();
        let (flush_done, was_flushed) = watch::channel(false);
        lifecycle.flushers.add("traces", async move {
            flush_done.send_replace(true);
        });
        let failed = async { anyhow::bail!("a thread failed") };
        assert!(lifecycle.run(failed, pending()).await.is_err());
        assert!(*was_flushed.borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_fails_ends_any_phase() {
        for (stop, fails_after) in [
            (None, Duration::from_secs(1)),
            (Some(Stop::Drain), DELAY / 2),
            (Some(Stop::Drain), DELAY + TIMEOUT / 2),
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
