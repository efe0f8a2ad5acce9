//! A Redis that fails during an upgrade: both builds decide by their share of the limit.

use super::{Answer, Build, hit};
use crate::support::redis::Server;
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
        let setup = build.on(&redis, RULES).env("WEIR__STORE__ON_FAILURE", "local");
        setup.env("WEIR__STORE__REPLICAS", builds.len().to_string()).start()
    };
    let replicas: Vec<Weir> = builds.iter().map(start).collect();
    for weir in &replicas {
        hit(weir, &[("user", "before")]);
    }
    redis.kill();
    admitted(&replicas, "after")
}

#[test]
fn without_redis_each_build_enforces_its_share() {
    use Build::{New, Old};
    for builds in [[Old; 4], [New; 4], [Old, Old, Old, New], [Old, Old, New, New]] {
        assert_eq!(admitted_without_redis(&builds), LIMIT, "{builds:?}");
    }
}
