//! Redis forgets scripts, starts anew, and is replaced by its replica, all while it is asked.

use std::collections::BTreeSet;

use super::*;
use crate::support::load::Load;
use crate::support::redis::Server;
use crate::support::redis::sentinel::{MASTER, Sentinels};

/// How soon answers are to be good again.
const SOON: Duration = Duration::from_secs(2);

/// Lets so much of a load pass.
fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// What went wrong, each kind once, among what was sent between two moments.
fn wrong(samples: &[Sample], from: Instant, to: Instant) -> BTreeSet<String> {
    let sent = samples.iter().filter(|sample| sample.sent >= from && sample.sent < to);
    sent.filter(|sample| sample.got != Got::Ok).map(|sample| format!("{:?}", sample.got)).collect()
}

#[test]
fn forgotten_scripts_fail_nobody_and_after_a_restart_all_is_well_soon() {
    let mut redis = Server::start();
    // Failures of all kinds, and none by a pause of this machine.
    let weir = within(on(redis.port(), WIDE), "2s").start();
    let began = Instant::now();
    let load = Load::start(weir.grpc, 200, &[ann()]);
    for _ in 0..5 {
        pass(Duration::from_millis(100));
        redis.command(&["SCRIPT", "FLUSH"]);
    }
    pass(Duration::from_millis(200));
    assert_eq!(wrong(&load.stop(), began, Instant::now()), BTreeSet::new(), "while flushing");

    let load = Load::start(weir.grpc, 200, &[ann()]);
    pass(Duration::from_millis(200));
    redis.restart();
    let back = Instant::now();
    pass(SOON + Duration::from_millis(500));
    let samples = load.stop();

    let recovered = recovery(&samples, back).expect("good answers");
    println!("after a restart: good after {recovered:?}");
    assert!(recovered <= SOON, "good after {recovered:?}");
    assert_eq!(wrong(&samples, back + SOON, Instant::now()), BTreeSet::new(), "afterwards");
}

#[test]
fn a_failover_by_sentinels_fails_requests_only_while_it_lasts() {
    let mut group = Sentinels::start();
    let setup = serving(WIDE)
        .env("WEIR__STORE__REDIS__TOPOLOGY", "sentinel")
        .env("WEIR__STORE__REDIS__URL", group.addresses().join(","))
        .env("WEIR__STORE__REDIS__SENTINEL__MASTER_NAME", MASTER);
    let weir = within(setup, "2s").start();
    let began = Instant::now();
    let load = Load::start(weir.grpc, 100, &[ann()]);
    pass(Duration::from_millis(500));
    assert_eq!(wrong(&load.stop(), began, Instant::now()), BTreeSet::new(), "before");

    let load = Load::start(weir.grpc, 100, &[ann()]);
    pass(Duration::from_millis(200));
    let killed = Instant::now();
    group.master.kill();
    group.wait_for_failover();
    let back = Instant::now();
    pass(SOON + Duration::from_secs(1));
    let samples = load.stop();

    assert_ne!(wrong(&samples, killed, back), BTreeSet::new(), "there was no failover");
    assert!(samples.iter().all(|sample| sample.got != Got::Hung));
    let recovered = recovery(&samples, back).expect("good answers");
    println!("a failover took {:?}, and then good after {recovered:?}", back - killed);
    assert!(recovered <= SOON, "good after {recovered:?}");
    assert_eq!(wrong(&samples, back + SOON, Instant::now()), BTreeSet::new(), "afterwards");
}
