//! Counting in a real Redis that is shared, restarted, slow or unreachable.

mod cluster;
mod counts;
mod deadlines;
mod faults;
mod lease_load;
mod leases;
mod log;
mod policies;
mod restarts;
mod sharding;
mod start;

use std::time::{Duration, Instant};

use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{HIGH_LIMIT, code, request, user_request, wait_for_code};
use crate::support::load::{Got, Sample};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{PATIENCE, wait_for};

/// A service with these rules that counts in the Redis at `port`.
fn with_redis(port: u16, rules: &str) -> Setup {
    serving(rules).env("REDIS_URL", format!("127.0.0.1:{port}"))
}

/// Waits until that many connections to Redis are up.
fn wait_for_connections(weir: &Weir, count: u64) {
    wait_for("connections are up", || {
        (weir.metric(r#"weir_redis_connections{redis="main"}"#) == count).then_some(())
    });
}

/// The number of consecutive OK answers after which a service counts as recovered.
const STEADY: usize = 100;

/// Returns how long after `from` the service recovered: when the first of [`STEADY`] consecutive OK
/// answers was requested. None if there is no such sequence.
fn recovery(samples: &[Sample], from: Instant) -> Option<Duration> {
    let mut after: Vec<_> = samples.iter().filter(|sample| sample.sent >= from).collect();
    after.sort_by_key(|sample| sample.sent);
    let all_ok = |run: &&[&Sample]| run.iter().all(|sample| sample.got == Got::Ok);
    Some(after.windows(STEADY).find(all_ok)?[0].sent - from)
}
