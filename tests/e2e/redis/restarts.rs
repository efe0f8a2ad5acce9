//! Flushed scripts, restarts and failovers of Redis under load.

use std::collections::BTreeSet;

use super::*;
use crate::support::load::Load;
use crate::support::redis::Server;
use crate::support::redis::sentinel::{MASTER, Sentinels};

/// How soon the service must recover.
const SOON: Duration = Duration::from_secs(2);

/// Lets the load run for a while.
fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// Returns the kinds of failures of requests that were sent between two moments.
fn failures(samples: &[Sample], from: Instant, to: Instant) -> BTreeSet<String> {
    let sent = samples.iter().filter(|sample| sample.sent >= from && sample.sent < to);
    sent.filter(|sample| sample.got != Got::Ok).map(|sample| format!("{:?}", sample.got)).collect()
}

#[test]
fn flushed_scripts_fail_no_request_and_a_restart_is_recovered_from() {
    let mut redis = Server::start();
    // Without a policy, so that failures show; generous, so that a pause of the machine is not one.
    let weir = with_redis(redis.port(), HIGH_LIMIT).store_times("2s").start();
    let start = Instant::now();
    let load = Load::start(weir.grpc, 200, &[user_request()]);
    for _ in 0..5 {
        load.wait_for_outcomes(20);
        redis.command(&["SCRIPT", "FLUSH"]);
    }
    load.wait_for_outcomes(40);
    assert_eq!(failures(&load.stop(), start, Instant::now()), BTreeSet::new(), "while flushing");

    let load = Load::start(weir.grpc, 200, &[user_request()]);
    load.wait_for_outcomes(40);
    redis.restart();
    let restored = Instant::now();
    pass(SOON + Duration::from_millis(500));
    let samples = load.stop();

    let recovered = recovery(&samples, restored).expect("a recovery");
    println!("recovered {recovered:?} after the restart");
    assert!(recovered <= SOON, "recovered after {recovered:?}");
    assert_eq!(failures(&samples, restored + SOON, Instant::now()), BTreeSet::new(), "afterwards");
}

#[test]
fn a_sentinel_failover_fails_requests_only_while_it_lasts() {
    let mut group = Sentinels::start();
    let setup = serving(HIGH_LIMIT)
        .env("WEIR__STORE__REDIS__TOPOLOGY", "sentinel")
        .env("WEIR__STORE__REDIS__URL", group.addresses().join(","))
        .env("WEIR__STORE__REDIS__SENTINEL__MASTER_NAME", MASTER);
    let weir = setup.store_times("2s").start();
    let start = Instant::now();
    let load = Load::start(weir.grpc, 100, &[user_request()]);
    load.wait_for_outcomes(50);
    assert_eq!(failures(&load.stop(), start, Instant::now()), BTreeSet::new(), "before");

    let load = Load::start(weir.grpc, 100, &[user_request()]);
    load.wait_for_outcomes(20);
    let killed = Instant::now();
    group.master.kill();
    group.wait_for_failover();
    let restored = Instant::now();
    pass(SOON + Duration::from_secs(1));
    let samples = load.stop();

    assert_ne!(
        failures(&samples, killed, restored),
        BTreeSet::new(),
        "the failover failed no request"
    );
    assert!(samples.iter().all(|sample| sample.got != Got::Hung));
    let recovered = recovery(&samples, restored).expect("a recovery");
    println!("failover after {:?}, recovered {recovered:?} later", restored - killed);
    assert!(recovered <= SOON, "recovered after {recovered:?}");
    assert_eq!(failures(&samples, restored + SOON, Instant::now()), BTreeSet::new(), "afterwards");
}
