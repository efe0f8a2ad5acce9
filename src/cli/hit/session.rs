//! Sends requests at their rate, and retries those that are over their limit.

use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tonic::Status;

use super::report::{Event, Report};
use super::summary::Summary;
use super::wait;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

/// How many requests to send, and when.
#[derive(Debug)]
pub(super) struct Session {
    pub repeat: NonZeroU64,
    /// The shortest time between two requests.
    pub interval: Option<Duration>,
    /// The longest wait for one request to be within its limit; none: no retries.
    pub max_wait: Option<Duration>,
}

impl Session {
    /// Sends all requests, one after the other. The summary is correct whenever this is dropped.
    pub async fn run(
        &self,
        ask: &mut impl AsyncFnMut() -> Result<RateLimitResponse, Status>,
        report: &mut dyn Report,
        summary: &mut Summary,
    ) {
        let started = Instant::now();
        let mut ticks = self.interval.map(|period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        for number in 1..=self.repeat.get() {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            self.request(number, started, ask, report, summary).await;
            summary.elapsed = started.elapsed();
        }
    }

    /// Sends one request until it is within its limit, fails, or may not wait longer.
    async fn request(
        &self,
        number: u64,
        started: Instant,
        ask: &mut impl AsyncFnMut() -> Result<RateLimitResponse, Status>,
        report: &mut dyn Report,
        summary: &mut Summary,
    ) {
        let mut waited = Duration::ZERO;
        loop {
            let sent = Instant::now();
            let answer = ask().await;
            let latency = sent.elapsed();
            summary.latencies.record(latency);
            summary.elapsed = started.elapsed();
            let response = match answer {
                Ok(response) => response,
                Err(error) => {
                    summary.errors += 1;
                    return report.event(Event::Error { number, error: &error });
                }
            };
            report.event(Event::Response { number, latency, response: &response });
            match response.overall_code() {
                Code::Ok => {
                    summary.ok += 1;
                    return;
                }
                Code::OverLimit => {}
                // No server sends it.
                Code::Unknown => {
                    summary.errors += 1;
                    return;
                }
            }
            match self.next_wait(&response, waited) {
                Ok(wait) => {
                    report.event(Event::Wait { wait });
                    // It counts as over its limit until it is not, should this be interrupted.
                    summary.over_limit += 1;
                    sleep(wait).await;
                    summary.over_limit -= 1;
                    waited = waited.saturating_add(wait);
                    summary.retries += 1;
                }
                Err(reason) => {
                    summary.over_limit += 1;
                    if let Some(reason) = reason {
                        report.event(Event::NoRetry { reason });
                    }
                    return;
                }
            }
        }
    }

    /// Returns the wait before the next retry, or why there is none.
    fn next_wait(
        &self,
        response: &RateLimitResponse,
        waited: Duration,
    ) -> Result<Duration, Option<&'static str>> {
        let max = self.max_wait.ok_or(None)?;
        let wait = wait::advertised(response).ok_or(Some("the server advertises no wait"))?;
        match waited.saturating_add(wait) <= max {
            true => Ok(wait),
            false => Err(Some("the advertised wait is longer than --wait allows")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;

    /// Collects events as text, with the time of each.
    struct Events(Instant, Vec<String>);

    impl Report for Events {
        fn event(&mut self, event: Event<'_>) {
            let at = self.0.elapsed().as_millis();
            self.1.push(match event {
                Event::Response { number, response, .. } => {
                    format!("{at} {number} {}", response.overall_code().as_str_name())
                }
                Event::Error { number, error } => format!("{at} {number} {}", error.message()),
                Event::Wait { wait } => format!("{at} wait {}", wait.as_millis()),
                Event::NoRetry { reason } => format!("{at} {reason}"),
            });
        }
    }

    /// A server that allows one request in two seconds, and advertises the rest of them.
    struct Server(Option<Instant>);

    impl Server {
        fn answer(&mut self) -> RateLimitResponse {
            let rest = self.0.map_or(Duration::ZERO, |last| {
                Duration::from_secs(2).saturating_sub(last.elapsed())
            });
            let code = if rest.is_zero() { Code::Ok } else { Code::OverLimit };
            if rest.is_zero() {
                self.0 = Some(Instant::now());
            }
            let reset = prost_types::Duration::try_from(rest).unwrap();
            let status = DescriptorStatus {
                code: code.into(),
                duration_until_reset: Some(reset),
                ..Default::default()
            };
            RateLimitResponse {
                overall_code: code.into(),
                statuses: vec![status],
                ..Default::default()
            }
        }
    }

    async fn run(
        repeat: u64,
        interval: Option<Duration>,
        max_wait: Option<Duration>,
    ) -> (Vec<String>, Summary) {
        let mut server = Server(None);
        let session = Session { repeat: NonZeroU64::new(repeat).unwrap(), interval, max_wait };
        let mut events = Events(Instant::now(), Vec::new());
        let mut summary = Summary::default();
        session.run(&mut async || Ok(server.answer()), &mut events, &mut summary).await;
        (events.1, summary)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_over_its_limit_is_sent_again_after_the_advertised_wait() {
        let (events, summary) = run(2, None, Some(wait::UNBOUNDED)).await;
        assert_eq!(events, ["0 1 OK", "0 2 OVER_LIMIT", "0 wait 2000", "2000 2 OK"]);
        assert_eq!((summary.ok, summary.over_limit, summary.retries), (2, 0, 1));
        assert_eq!(summary.elapsed, Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_no_longer_than_allowed() {
        let (events, summary) = run(2, None, Some(Duration::from_millis(1_999))).await;
        let reason = "0 the advertised wait is longer than --wait allows";
        assert_eq!(events, ["0 1 OK", "0 2 OVER_LIMIT", reason]);
        assert_eq!((summary.ok, summary.over_limit, summary.retries), (1, 1, 0));
        let (events, _) = run(2, None, None).await;
        assert_eq!(events, ["0 1 OK", "0 2 OVER_LIMIT"]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_keep_their_distance() {
        let (events, summary) = run(5, Some(Duration::from_millis(500)), None).await;
        let wanted =
            ["0 1 OK", "500 2 OVER_LIMIT", "1000 3 OVER_LIMIT", "1500 4 OVER_LIMIT", "2000 5 OK"];
        assert_eq!(events, wanted);
        assert_eq!((summary.ok, summary.over_limit), (2, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_is_not_repeated() {
        let session =
            Session { repeat: NonZeroU64::MIN, interval: None, max_wait: Some(Duration::MAX) };
        let mut events = Events(Instant::now(), Vec::new());
        let mut summary = Summary::default();
        let mut ask = async || Err(Status::unavailable("gone"));
        session.run(&mut ask, &mut events, &mut summary).await;
        assert_eq!(events.1, ["0 1 gone"]);
        assert_eq!(summary.errors, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_wait_counts_as_over_the_limit() {
        let mut server = Server(None);
        let repeat = NonZeroU64::new(2).unwrap();
        let session = Session { repeat, interval: None, max_wait: Some(Duration::MAX) };
        let mut events = Events(Instant::now(), Vec::new());
        let mut summary = Summary::default();
        let mut ask = async || Ok(server.answer());
        let running = session.run(&mut ask, &mut events, &mut summary);
        tokio::time::timeout(Duration::from_secs(1), running).await.unwrap_err();
        assert_eq!((summary.ok, summary.over_limit, summary.errors), (1, 1, 0));
    }
}
