//! Leases of keys in Redis.

use std::time::Instant;

use super::servers::cluster::Cluster;
use super::servers::proxy::Proxy;
use super::*;
use weir_common::clock::BootClock;
use weir_limit::{Algorithm, BucketedWindow, SlidingWindow, Source};
use weir_store::Operations;
use weir_store::local::{Local, LocalOptions};

use tokio::runtime::{Builder, Runtime};

const LENGTH: Duration = Duration::from_millis(100);

fn leasing_for(leases_for: Duration) -> LocalOptions {
    LocalOptions { leases_for, ..LocalOptions::default() }
}

fn windows() -> Vec<Arc<Plan>> {
    let hour = Limit::fixed_window(2_000, Unit::Hour, 1).unwrap();
    let lone = |algorithm: Algorithm| Limit { algorithm, charge_denied: false, ..hour.clone() };
    let sliding = lone(SlidingWindow { n: 700, period: SECOND }.into());
    let ring = lone(BucketedWindow { n: 900, period: SECOND, buckets: 7 }.into());
    let second = Limit::fixed_window(500, Unit::Second, 1).unwrap();
    let uncharged = |limit: &Limit| Limit { charge_denied: false, ..limit.clone() };
    let plans = [
        vec![second.clone()],
        vec![uncharged(&second)],
        vec![uncharged(&second), uncharged(&hour)],
        vec![sliding.clone()],
        vec![ring.clone(), uncharged(&hour)],
        vec![sliding, ring],
    ];
    plans.map(|limits| Arc::new(Plan::new(limits).with_near_limit_ratio(Some(0.8)))).to_vec()
}

/// Waits until the answer to every lease charge has come: they are sent behind this one.
async fn settled(store: &Local<RedisStore>) {
    let _ = try_take(store.inner(), "other", &plan(1, Unit::Day)).await;
}

/// Codes, what is left and waits are those without leases, hit by hit.
#[test]
fn one_replica_answers_as_without_leases() {
    let server = Server::start();
    for (i, plan) in windows().iter().enumerate() {
        runtime().block_on(async {
            let clock = Arc::new(ManualClock::new(DAWN));
            let leasing =
                Local::new(manual(single(&server), &clock), clock.clone(), leasing_for(LENGTH));
            let alone = manual(single(&server), &clock);
            let (leased_key, key) = (format!("leased {i}"), format!("alone {i}"));
            let mut leased = 0;
            for round in 0..1_500_u64 {
                let op = match round {
                    _ if round % 331 == 330 => Op::Take(60),
                    _ if round % 47 == 46 => Op::Take(0),
                    _ if round % 411 == 410 => Op::Refund(3),
                    _ => Op::Take(1 + u64::from(round % 5 == 0)),
                };
                let [entries, others] = [&leased_key, &key].map(|key| [("key", key.as_str())]);
                let decision = one(&leasing, charge_of(&entries, plan, op)).await;
                let expected = one(&alone, charge_of(&others, plan, op)).await;
                leased += u32::from(decision.source == Source::Leased);
                let decision = Decision { source: Source::Store, ..decision };
                assert_eq!(decision, expected, "{round} of {}", plan.shape());
                settled(&leasing).await;
                clock.advance(if round % 700 == 699 { 400_000 } else { 1_000 });
            }
            assert!(leased > 300, "{leased} of {}", plan.shape());
        });
    }
}

/// A random number below a bound.
fn below(bound: u64) -> u64 {
    (weir_common::threads::random() * bound as f64) as u64
}

/// What differs while requests take their `time`: where it was decided, and waits by that time.
fn assert_equal(decision: &Decision, expected: &Decision, time: Duration, what: &str) {
    let near = |decision: &Decision| -> Vec<_> {
        let near = decision.near.iter().flat_map(|limits| limits.iter());
        near.map(|near| (near.limit, near.used)).collect()
    };
    let numbers = |decision: &Decision| {
        let Decision { allowed, limit, used_before, remaining, .. } = *decision;
        (allowed, limit, used_before, remaining, near(decision))
    };
    assert_eq!(numbers(decision), numbers(expected), "{what}");
    assert_eq!(decision.retry_after.is_some(), expected.retry_after.is_some(), "{what}");
    let waits = [
        (decision.reset_after, expected.reset_after),
        (decision.retry_after.unwrap_or(0), expected.retry_after.unwrap_or(0)),
    ];
    let most = time.as_micros() as Micros + SECOND;
    assert!(waits.iter().all(|(a, b)| a.abs_diff(*b) < most), "{waits:?} {what}");
}

/// One replica with two threads, one request after the other, by turns; Redis is `delay` away. Beside it the same
/// requests without leases.
fn assert_one_replica_answers_as_without_leases(
    server: &Server,
    key: String,
    plan: &Arc<Plan>,
    delay: Duration,
) {
    // A key is hot from 32 requests in that time, also on a busy machine.
    let length = Duration::from_secs(4);
    let proxy = Proxy::start(server.port());
    proxy.delay(delay);
    let thread = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let threads: [Runtime; 2] = [thread(), thread()];
    // Each thread has a connection of its own.
    let far = RedisStore::new(RedisOptions { connections: 64, ..options(local(proxy.port())) });
    let leasing = Arc::new(Local::new(far, BootClock, leasing_for(length)));
    let sweeping = leasing.clone();
    threads[0].spawn(async move { sweeping.maintain().await });
    let (own, alone) = (runtime(), RedisStore::new(options(single(server))));

    let n = u64::from(plan.limits()[0].requests_per_unit);
    let mut leased = 0;
    for round in 0..400_usize {
        let op = match below(100) {
            // Not at first: where denied hits count, a window may be used up before its key is hot.
            0..3 if leased > 0 => Op::Take(1 + below(n)),
            3..7 => Op::Take(0),
            7..10 => Op::Refund(1 + below(n)),
            10..20 => Op::Take(1 + below(3)),
            _ => Op::Take(1),
        };
        let (thread, start) = (&threads[round % 2], Instant::now());
        let decision = thread.block_on(thread.spawn({
            let (leasing, plan, key) = (leasing.clone(), plan.clone(), key.clone());
            async move { one(&*leasing, charge_of(&[("leased", &key)], &plan, op)).await }
        }));
        let decision = decision.unwrap();
        let expected = own.block_on(one(&alone, charge_of(&[("alone", &key)], plan, op)));
        let what = format!("{round}: {op:?} of {key}");
        assert_equal(&decision, &expected, start.elapsed(), &what);
        leased += u32::from(decision.source == Source::Leased);
        // Twice until what is left is being returned.
        if round % 150 == 149 {
            let wait = length + Duration::from_millis(below(100));
            own.block_on(async { tokio::time::sleep(wait).await });
        }
    }
    assert!(leased > 0, "{key}");
}

/// 2 000 requests over links of 2 and 20 ms.
#[test]
fn one_replica_answers_as_without_leases_over_slow_links() {
    const YEAR: Micros = 366 * 86_400 * SECOND;
    let year = Limit::fixed_window(1_000, Unit::Year, 1).unwrap();
    let uncharged = Limit { charge_denied: false, ..year.clone() };
    let other = |algorithm: Algorithm| Limit { algorithm, ..uncharged.clone() };
    let sliding = other(SlidingWindow { n: 1_000, period: YEAR }.into());
    let ring = other(BucketedWindow { n: 1_000, period: YEAR, buckets: 6 }.into());
    let month = Limit::fixed_window(2_000, Unit::Month, 1).unwrap();
    let month = Limit { charge_denied: false, ..month };
    let plans =
        [vec![year], vec![uncharged.clone()], vec![sliding], vec![ring], vec![uncharged, month]];
    let server = Server::start();
    std::thread::scope(|scope| {
        for (number, limits) in plans.iter().enumerate() {
            for delay in [2, 20].map(Duration::from_millis) {
                let plan = Plan::new(limits.clone()).with_near_limit_ratio(Some(0.8));
                let (server, plan, key) = (&server, Arc::new(plan), format!("{number} {delay:?}"));
                scope.spawn(move || {
                    assert_one_replica_answers_as_without_leases(server, key, &plan, delay);
                });
            }
        }
    });
}

async fn one(store: &impl Store, charge: Charge<'_>) -> Decision {
    let mut answers = Answers::new();
    let charges = [charge];
    let batch = Batch::new(&charges, Duration::from_secs(10));
    store.charge(&batch, &mut answers).await;
    answers.pop().unwrap().unwrap()
}

/// Replicas that race for a key never admit more than its limit together, and what they admit is what is counted.
#[test]
fn replicas_never_admit_more_than_the_limit() {
    let server = Server::start();
    let hour = Limit::fixed_window(3_000, Unit::Hour, 1).unwrap();
    let hour = Arc::new(Plan::new(vec![Limit { charge_denied: false, ..hour }]));
    runtime().block_on(async {
        let mut replicas = Vec::new();
        for _ in 0..3 {
            let store = connected(options(single(&server))).await;
            replicas.push(Local::new(store, BootClock, leasing_for(LENGTH)));
        }
        let admitted = async |replica: &Local<RedisStore>| {
            let (mut admitted, mut leased) = (0, 0);
            for _ in 0..2_000 {
                let decision = one(replica, charge_of(&[("key", "a")], &hour, Op::Take(1))).await;
                admitted += u32::from(decision.allowed);
                leased += u32::from(decision.allowed && decision.source == Source::Leased);
            }
            (admitted, leased)
        };
        let [a, b, c] = &replicas[..] else { unreachable!() };
        let counts = tokio::join!(admitted(a), admitted(b), admitted(c));
        let counts = [counts.0, counts.1, counts.2];
        let sum: u32 = counts.iter().map(|(admitted, _)| admitted).sum();
        assert!((1..=3_000).contains(&sum), "{counts:?}");
        // One may have taken so much that another was not asked often enough for a lease.
        assert!(counts.iter().any(|(_, leased)| *leased > 0), "{counts:?}");
        // What nobody asked for comes back.
        for replica in &replicas {
            replica.drain();
            replica.drained().await;
        }
        let look = one(a.inner(), charge_of(&[("key", "a")], &hour, Op::Take(0))).await;
        assert_eq!(look.used_before, u64::from(sum), "{counts:?}");
    });
}

/// Keys of a cluster are leased on their nodes.
#[test]
fn keys_of_a_cluster_are_leased_on_their_nodes() {
    let cluster = Cluster::start(2, 0);
    let hour = Limit::fixed_window(3_000, Unit::Hour, 1).unwrap();
    let hour = Arc::new(Plan::new(vec![Limit { charge_denied: false, ..hour }]));
    runtime().block_on(async {
        let topology = Topology::Cluster(endpoints(&cluster.addresses()));
        let replica =
            Local::new(connected(options(topology)).await, BootClock, leasing_for(LENGTH));
        for value in ["a", "b", "c", "d"] {
            let (entries, mut leased) = ([("key", value)], 0);
            for _ in 0..400 {
                let decision = one(&replica, charge_of(&entries, &hour, Op::Take(1))).await;
                assert!(decision.allowed);
                leased += u32::from(decision.source == Source::Leased);
            }
            assert!(leased > 0, "{value}");
        }
        replica.drain();
        replica.drained().await;
        for value in ["a", "b", "c", "d"] {
            let entries = [("key", value)];
            let look = one(replica.inner(), charge_of(&entries, &hour, Op::Take(0))).await;
            assert_eq!(look.used_before, 400, "{value}");
        }
    });
}
