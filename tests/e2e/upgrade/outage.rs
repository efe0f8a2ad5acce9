//! A Redis that fails during an upgrade: both builds decide by their share of the limit.

use super::{Answer, Build, hit};
use crate::support::redis::Server;
use crate::support::wait_for;
use crate::support::weir::Weir;

const LIMIT: u64 = 100;

const RULES: &str = "domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 100 }
";

/// Returns how many hits of a user are admitted.
fn admitted(replicas: &[Weir], user: &str) -> u64 {
    let mut count = 0;
    for weir in replicas {
        let is_admitted = |_: &u64| hit(weir, &[("user", user)]) != Answer::Denied;
        count += (0..=LIMIT).take_while(is_admitted).count() as u64;
    }
    count
}

/// Starts replicas, stops Redis, and returns how many hits of a user all of them admit then.
fn admitted_without_redis(builds: &[Build]) -> u64 {
    let mut redis = Server::start();
    let start = |build: &Build| {
        let setup = build.counted_on(&redis, RULES).env("WEIR__STORE__ON_FAILURE", "local");
        setup.env("WEIR__STORE__REPLICAS", builds.len().to_string()).start()
    };
    let replicas: Vec<Weir> = builds.iter().map(start).collect();
    for (build, weir) in builds.iter().zip(&replicas) {
        hit(weir, &[("user", "before")]);
        if build.counts_replicas() {
            let counting = builds.iter().filter(|build| build.counts_replicas()).count() as u64;
            wait_for("it has seen the others", || {
                (weir.metric("weir_store_replicas") == counting).then_some(())
            });
        }
    }
    redis.kill();
    admitted(&replicas, "after")
}

#[test]
fn without_redis_each_build_enforces_its_share() {
    for build in [Build::Old, Build::New] {
        assert_eq!(admitted_without_redis(&[build; 4]), LIMIT, "{build:?}");
    }
}

#[test]
fn without_redis_both_builds_admit_twice_the_limit_at_most() {
    use Build::{New, Old};
    for builds in [[Old, Old, Old, New], [Old, Old, New, New], [Old, New, New, New]] {
        // A build that counts replicas does not see those that do not.
        let admitted = admitted_without_redis(&builds);
        println!("{builds:?} admit {admitted} of {LIMIT}");
        assert!((LIMIT..=2 * LIMIT).contains(&admitted), "{builds:?}: {admitted}");
    }
}
