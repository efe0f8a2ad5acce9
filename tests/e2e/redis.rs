//! Counting in a real Redis that is shared, restarted, slow and gone.
//!
//! Where a test is not about slowness its budget is as long as a busy machine may need.

mod cluster;
mod counts;
mod deadlines;
mod faults;
mod log;
mod policies;
mod restarts;
mod start;

use std::time::{Duration, Instant};

use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{code, request};
use crate::support::load::{Got, Sample};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{PATIENCE, wait_for};

/// Budget and threshold of tests that are not about slowness.
const AMPLE: &str = "10s";

/// A limit that nobody reaches: who is over it is so by the policy `deny`.
const WIDE: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000000000 }
";

/// `weir` with these rules, counting in the Redis behind a port.
fn on(port: u16, rules: &str) -> Setup {
    serving(rules).env("REDIS_URL", format!("127.0.0.1:{port}"))
}

/// With that much time for requests, and for round trips.
fn within(setup: Setup, time: &str) -> Setup {
    setup.env("WEIR__STORE__BUDGET", time).env("WEIR__STORE__REDIS__SLOW_AFTER", time)
}

fn ann() -> RateLimitRequest {
    request("shop", &[("user", "ann")])
}

/// Waits until `weir` gives that answer to [`ann`].
async fn until(weir: &Weir, wanted: Code) {
    let give_up = Instant::now() + PATIENCE;
    while code(weir.grpc, ann()).await != wanted {
        assert!(Instant::now() < give_up, "no {wanted:?} within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// As many good answers in a row are no chance.
const STEADY: usize = 100;

/// How long after `from` answers were good again: when the first of [`STEADY`] good ones in a row
/// was sent. None where there is no such row.
fn recovery(samples: &[Sample], from: Instant) -> Option<Duration> {
    let mut after: Vec<_> = samples.iter().filter(|sample| sample.sent >= from).collect();
    after.sort_by_key(|sample| sample.sent);
    let row = after.windows(STEADY).find(|row| row.iter().all(|sample| sample.got == Got::Ok))?;
    Some(row[0].sent - from)
}
