//! Sends requests at their rate, and retries those that are over their limit.

use std::cell::{Cell, RefCell};
use std::io;
use std::num::{NonZeroU16, NonZeroU64};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::Mutex;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};
use tonic::Status;

use super::report::{Event, Report};
use super::summary::Summary;
use super::wait;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir_common::duration::exact;

/// How many requests to send, and when.
#[derive(Debug)]
pub(super) struct Session {
    pub repeat: NonZeroU64,
    /// The most requests in flight.
    pub parallel: NonZeroU16,
    /// The shortest time between two requests.
    pub interval: Option<Duration>,
    /// The longest wait for one request to be within its limit; none: no retries.
    pub max_wait: Option<Duration>,
}

/// What all senders of a session share.
struct Shared<'s> {
    started: Instant,
    next_number: Cell<u64>,
    ticks: Option<Mutex<Interval>>,
    report: RefCell<&'s mut dyn Report>,
    summary: RefCell<&'s mut Summary>,
}

impl Shared<'_> {
    fn report(&self, event: Event<'_>) -> io::Result<()> {
        self.report.borrow_mut().event(event)
    }

    fn count(&self, count: impl FnOnce(&mut Summary)) {
        let mut summary = self.summary.borrow_mut();
        count(&mut summary);
        summary.elapsed = self.started.elapsed();
    }
}

impl Session {
    /// Sends all requests. The summary is correct whenever this is dropped.
    ///
    /// # Errors
    /// An event cannot be reported: the reader of the output may be gone.
    pub async fn run(
        &self,
        ask: &impl AsyncFn() -> Result<RateLimitResponse, Status>,
        report: &mut dyn Report,
        summary: &mut Summary,
    ) -> io::Result<()> {
        let ticks = self.interval.map(|period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            Mutex::new(ticks)
        });
        let shared = Shared {
            started: Instant::now(),
            next_number: Cell::new(1),
            ticks,
            report: RefCell::new(report),
            summary: RefCell::new(summary),
        };
        let senders = (0..self.parallel.get()).map(|_| self.send(ask, &shared));
        try_join_all(senders).await.map(drop)
    }

    /// Sends requests, one after the other, until none is left.
    async fn send(
        &self,
        ask: &impl AsyncFn() -> Result<RateLimitResponse, Status>,
        shared: &Shared<'_>,
    ) -> io::Result<()> {
        loop {
            let number = shared.next_number.get();
            if number > self.repeat.get() {
                return Ok(());
            }
            shared.next_number.set(number.saturating_add(1));
            if let Some(ticks) = &shared.ticks {
                ticks.lock().await.tick().await;
            }
            self.request(number, ask, shared).await?;
        }
    }

    /// Sends one request until it is within its limit, fails, or may not wait longer.
    async fn request(
        &self,
        number: u64,
        ask: &impl AsyncFn() -> Result<RateLimitResponse, Status>,
        shared: &Shared<'_>,
    ) -> io::Result<()> {
        let mut waited = Duration::ZERO;
        loop {
            let sent = Instant::now();
            let answer = ask().await;
            let latency = sent.elapsed();
            shared.count(|summary| {
                summary.latencies.record(latency);
                match answer.as_ref().map(RateLimitResponse::overall_code) {
                    Ok(Code::Ok) => summary.ok += 1,
                    Ok(Code::OverLimit) => summary.over_limit += 1,
                    // No server sends it.
                    Ok(Code::Unknown) | Err(_) => summary.errors += 1,
                }
            });
            let response = match answer {
                Ok(response) => response,
                Err(error) => return shared.report(Event::Error { number, error: &error }),
            };
            shared.report(Event::Response { number, latency, response: &response })?;
            if response.overall_code() != Code::OverLimit {
                return Ok(());
            }
            match self.next_wait(&response, waited) {
                Ok(wait) => {
                    shared.report(Event::Wait { wait })?;
                    sleep(wait).await;
                    waited = waited.saturating_add(wait);
                    // Until then it counts as over its limit, should this be interrupted.
                    shared.count(|summary| {
                        summary.over_limit -= 1;
                        summary.retries += 1;
                    });
                }
                Err(None) => return Ok(()),
                Err(Some(reason)) => {
                    return shared.report(Event::NoRetry { number, reason: &reason });
                }
            }
        }
    }

    /// Returns the wait before the next retry, or why there is none.
    fn next_wait(
        &self,
        response: &RateLimitResponse,
        waited: Duration,
    ) -> Result<Duration, Option<String>> {
        let max = self.max_wait.ok_or(None)?;
        let Some(wait) = wait::advertised(response) else {
            return Err(Some("the server advertises no wait".to_owned()));
        };
        if waited.saturating_add(wait) <= max {
            return Ok(wait);
        }
        let already = match waited.is_zero() {
            true => String::new(),
            false => format!(", of which {} have passed", exact(waited)),
        };
        let (wait, max) = (exact(wait), exact(max));
        Err(Some(format!("the server advertises {wait}, --wait allows {max}{already}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;

    /// Collects events as text, with the time of each. Fails after the first 10.
    struct Events(Instant, Vec<String>);

    impl Report for Events {
        fn event(&mut self, event: Event<'_>) -> io::Result<()> {
            if self.1.len() == 10 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let at = self.0.elapsed().as_millis();
            self.1.push(match event {
                Event::Response { number, response, .. } => {
                    format!("{at} {number} {}", response.overall_code().as_str_name())
                }
                Event::Error { number, error } => format!("{at} {number} {}", error.message()),
                Event::Wait { wait } => format!("{at} wait {}", wait.as_millis()),
                Event::NoRetry { number, reason } => format!("{at} {number} {reason}"),
            });
            Ok(())
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

    fn session(repeat: u64, interval: Option<Duration>, max_wait: Option<Duration>) -> Session {
        let repeat = NonZeroU64::new(repeat).unwrap();
        Session { repeat, parallel: NonZeroU16::MIN, interval, max_wait }
    }

    /// Runs a session with such a server that answers after a delay.
    async fn run_slowly(session: Session, delay: Duration) -> (Vec<String>, Summary) {
        let server = RefCell::new(Server(None));
        let mut events = Events(Instant::now(), Vec::new());
        let mut summary = Summary::default();
        let ask = async || {
            sleep(delay).await;
            Ok(server.borrow_mut().answer())
        };
        let result = session.run(&ask, &mut events, &mut summary).await;
        assert_eq!(result.is_err(), events.1.len() == 10);
        (events.1, summary)
    }

    async fn run(
        repeat: u64,
        interval: Option<Duration>,
        max_wait: Option<Duration>,
    ) -> (Vec<String>, Summary) {
        run_slowly(session(repeat, interval, max_wait), Duration::ZERO).await
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_sent_in_parallel() {
        let session = Session { parallel: NonZeroU16::new(2).unwrap(), ..session(5, None, None) };
        let (events, summary) = run_slowly(session, Duration::from_secs(1)).await;
        let wanted = [
            "1000 1 OK",
            "1000 2 OVER_LIMIT",
            "2000 3 OVER_LIMIT",
            "2000 4 OVER_LIMIT",
            "3000 5 OK",
        ];
        assert_eq!(events, wanted);
        assert_eq!((summary.ok, summary.over_limit), (2, 3));
        let session = Session {
            parallel: NonZeroU16::new(9).unwrap(),
            ..self::session(4, Some(Duration::from_millis(500)), None)
        };
        let (events, _) = run_slowly(session, Duration::from_secs(1)).await;
        let times: Vec<_> = events.iter().filter_map(|event| event.split(' ').next()).collect();
        assert_eq!(times, ["1000", "1500", "2000", "2500"], "at their rate");
    }

    #[tokio::test(start_paused = true)]
    async fn it_stops_when_nobody_reads_the_output() {
        let (events, summary) = run(1_000, None, None).await;
        assert_eq!(events.len(), 10);
        assert_eq!((summary.ok, summary.over_limit), (1, 10));
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
        let reason = "0 2 the server advertises 2s, --wait allows 1.999s";
        assert_eq!(events, ["0 1 OK", "0 2 OVER_LIMIT", reason]);
        assert_eq!((summary.ok, summary.over_limit, summary.retries), (1, 1, 0));
        let (events, _) = run(2, None, None).await;
        assert_eq!(events, ["0 1 OK", "0 2 OVER_LIMIT"]);
        let over = Server(Some(Instant::now())).answer();
        let session = session(1, None, Some(Duration::from_secs(3)));
        let reason = session.next_wait(&over, Duration::from_secs(2)).unwrap_err().unwrap();
        assert_eq!(reason, "the server advertises 2s, --wait allows 3s, of which 2s have passed");
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
        let session = session(1, None, Some(Duration::MAX));
        let mut events = Events(Instant::now(), Vec::new());
        let mut summary = Summary::default();
        let ask = async || Err(Status::unavailable("gone"));
        session.run(&ask, &mut events, &mut summary).await.unwrap();
        assert_eq!(events.1, ["0 1 gone"]);
        assert_eq!(summary.errors, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_wait_counts_as_over_the_limit() {
        let server = RefCell::new(Server(None));
        let session = session(2, None, Some(Duration::MAX));
        let mut events = Events(Instant::now(), Vec::new());
        let mut summary = Summary::default();
        let ask = async || Ok(server.borrow_mut().answer());
        let running = session.run(&ask, &mut events, &mut summary);
        tokio::time::timeout(Duration::from_secs(1), running).await.unwrap_err();
        assert_eq!((summary.ok, summary.over_limit, summary.errors), (1, 1, 0));
    }
}
