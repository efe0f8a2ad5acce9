//! Redis stands still, fails over, moves keys or answers late. All of it in long tests only.

use super::clients::{Load, now};
use super::*;
use crate::support::redis::cluster::Cluster;
use crate::support::redis::proxy::Proxy;
use crate::support::redis::sentinel::{MASTER, Sentinels};

/// A budget that is over before anything that fails is back.
const BUDGET: &str = "100ms";

const REPLICAS: usize = 2;

/// The length of a window under long load.
const LENGTH: Micros = LONG.seconds * SECOND;

/// Sleeps until some hits of a window are charged, and most are not.
fn sleep_into_a_window() {
    sleep(Duration::from_micros(LENGTH + LENGTH / 5 - now() % LENGTH));
}

/// Fails if some window surely admitted more than n, except those with what Redis forgot: what was charged from one time
/// to another. They may have that and a lease of each replica more.
fn examine_failover(title: &str, outcome: &Outcome, from: Micros, to: Micros) {
    let forgotten = |rule: u8| {
        let of_rule = outcome.samples.iter().filter(|sample| sample.rule == rule);
        let late =
            of_rule.filter(|sample| sample.admitted && sample.answered > from && sample.sent < to);
        late.map(|sample| u64::from(sample.hits)).sum::<u64>()
    };
    let mut over = Vec::new();
    println!("{title}: {} requests, {} failed", outcome.requests, outcome.failed);
    for limit in LONG.limits() {
        let more = forgotten(limit.rule) + REPLICAS as u64 * limit.n / 8;
        let report = limit.examine(&outcome.samples, |span| {
            let reaches = span.end + if limit.estimates { limit.step } else { 0 };
            if span.start <= to && to < reaches { limit.n + more } else { limit.n }
        });
        println!("  {}: up to {more} more", limit.name);
        over.extend(report.over);
        // What is admitted in fact.
        let exactly = limit.examine(&outcome.samples, |_| limit.n);
        exactly.over.iter().for_each(|window| println!("  {window}"));
    }
    assert!(over.is_empty(), "{over:#?}");
}

#[test]
fn a_redis_that_stands_still_admits_no_more_than_a_window() {
    if !is_long() {
        return;
    }
    let redis = Server::start();
    let on = on(&redis);
    let setup = move |setup| on(setup).store_times(BUDGET);
    let exam = Exam::start(setup, SHORT, REPLICAS, Target::Steady);
    seconds(2);
    for _ in 0..6 {
        for stands_still in [300, 2_000] {
            redis.stop();
            sleep(Duration::from_millis(stands_still));
            redis.go_on();
            sleep(Duration::from_millis(1_400));
        }
    }
    exam.stop_and_examine("Redis stands still");
}

/// The new master may lack what the old one has charged last.
#[test]
fn a_failover_admits_at_most_a_lease_of_each_replica_more() {
    if !is_long() {
        return;
    }
    /// How long the old master may not have passed on what it charged.
    const BEHIND: Micros = 100_000;
    for _ in 0..2 {
        let mut group = Sentinels::start();
        let url = group.addresses().join(",");
        let setup = move |setup: Setup| {
            let setup = setup
                .env("WEIR__STORE__REDIS__TOPOLOGY", "sentinel")
                .env("WEIR__STORE__REDIS__URL", &url)
                .env("WEIR__STORE__REDIS__SENTINEL__MASTER_NAME", MASTER);
            setup.store_times(BUDGET)
        };
        let exam = Exam::start(setup, LONG, REPLICAS, Target::Steady);
        sleep_into_a_window();
        let killed = now();
        group.master.kill();
        group.wait_for_failover();
        sleep(Duration::from_micros(2 * LENGTH));
        let (outcome, replicas) = exam.stop();
        examine_failover("failover", &outcome, killed - BEHIND, killed);
        assert!(leased(&replicas) > 0);
    }
}

/// As behind a proxy that keeps its connections: what was charged last is gone, and so are the scripts.
#[test]
fn a_failover_behind_open_connections_admits_at_most_a_lease_of_each_replica_more() {
    if !is_long() {
        return;
    }
    let redis = Server::configured(&["enable-debug-command local"]);
    for _ in 0..3 {
        let on = on(&redis);
        let setup = move |setup| on(setup).store_times(BUDGET);
        let exam = Exam::start(setup, LONG, REPLICAS, Target::Steady);
        sleep_into_a_window();
        let begun = now();
        redis.command(&["SAVE"]);
        sleep(Duration::from_millis(100));
        redis.command(&["SCRIPT", "FLUSH"]);
        redis.command(&["DEBUG", "RELOAD", "NOSAVE"]);
        let ended = now();
        sleep(Duration::from_micros(2 * LENGTH));
        let (outcome, replicas) = exam.stop();
        examine_failover("failover behind open connections", &outcome, begun, ended);
        assert!(leased(&replicas) > 0);
    }
}

#[test]
fn a_slot_that_moves_admits_no_more_than_a_window() {
    if !is_long() {
        return;
    }
    let cluster = Cluster::start(3, 0);
    let url = cluster.addresses().join(",");
    let setup = move |setup: Setup| {
        setup.env("WEIR__STORE__REDIS__TOPOLOGY", "cluster").env("WEIR__STORE__REDIS__URL", &url)
    };
    let exam = Exam::start(setup, SHORT, REPLICAS, Target::Steady);
    seconds(1);
    for _ in 0..12 {
        for rule in RULES {
            let key = format!("{{load|{rule}=hot}}");
            let slot = cluster.masters[0].command(&["CLUSTER", "KEYSLOT", &key]).int();
            let slot = u16::try_from(slot).expect("a slot");
            let to = (cluster.master_of(slot) + 1) % 3;
            for step in [Cluster::begin_to_move, Cluster::move_keys, Cluster::end_the_move] {
                step(&cluster, slot, to);
                sleep(Duration::from_millis(70));
            }
        }
    }
    exam.stop_and_examine("slots move");
}

/// Grants and the answers to what is returned come when nobody waits for them any more.
#[test]
fn answers_that_come_late_admit_no_more_than_a_window() {
    if !is_long() {
        return;
    }
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let url = format!("127.0.0.1:{}", proxy.port());
    let setup = move |setup: Setup| setup.env("REDIS_URL", &url).store_times(BUDGET);
    let exam = Exam::start(setup, SHORT, REPLICAS, Target::Steady);
    seconds(2);
    for late in [150, 300, 1_500] {
        proxy.delay(Duration::from_millis(late));
        seconds(5);
        proxy.resume();
        seconds(2);
    }
    // Every third answer, so that connections are used in between.
    proxy.slow_some(3, Duration::from_millis(90)..Duration::from_millis(400));
    seconds(5);
    proxy.resume();
    seconds(2);
    exam.stop_and_examine("late answers");
}

#[test]
fn a_redis_for_limits_of_a_second_admits_no_more_than_a_window() {
    if !is_long() {
        return;
    }
    let (main, per_second) = (Server::start(), Server::start());
    let (on, url) = (on(&main), per_second.addr());
    let setup =
        move |setup| on(setup).env("REDIS_PERSECOND", "true").env("REDIS_PERSECOND_URL", &url);
    let exam = Exam::start(setup, SHORT, REPLICAS, Target::Steady);
    seconds(20);
    let keys = per_second.command(&["DBSIZE"]).int();
    assert!(keys > 0, "nothing is counted there");
    exam.stop_and_examine("a Redis per second");

    // Without rules of which others are leased.
    let rules = "domain: load\ndescriptors:\n  - key: plain\n    rate_limit: \
                 { unit: second, requests_per_unit: 1000000, charge_denied: false }\n";
    let (on, url) = (super::on(&main), per_second.addr());
    let setup = |setup| on(setup).env("REDIS_PERSECOND", "true").env("REDIS_PERSECOND_URL", &url);
    let replicas = [replica(setup, rules)];
    let load = Load::start(&["plain"], vec![replicas[0].grpc], 8, Target::Steady);
    seconds(2);
    load.stop();
    assert!(leased(&replicas) > 0);
}
