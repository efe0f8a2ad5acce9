//! Leases of keys in Redis.

use super::servers::cluster::Cluster;
use super::*;
use crate::Operations;
use crate::leases::Leases;
use weir_common::clock::BootClock;
use weir_limit::{Algorithm, BucketedWindow, SlidingWindow, Source};

const LENGTH: Duration = Duration::from_millis(100);

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
async fn settled(store: &Leases<RedisStore>) {
    let _ = try_take(store.inner(), "other", &plan(1, Unit::Day)).await;
}

/// Codes, what is left and waits are those without leases, hit by hit.
#[test]
fn one_replica_answers_as_without_leases() {
    let server = Server::start();
    for (i, plan) in windows().iter().enumerate() {
        runtime().block_on(async {
            let clock = Arc::new(ManualClock::new(DAWN));
            let leasing = Leases::new(manual(single(&server), &clock), clock.clone(), LENGTH);
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

async fn one(store: &impl Store, charge: Charge<'_>) -> Decision {
    let mut answers = Answers::new();
    let charges = [charge];
    let batch = Batch::new(&charges, Duration::from_secs(10));
    store.charge(batch, &mut answers).await;
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
            replicas.push(Leases::new(store, BootClock, LENGTH));
        }
        let admitted = async |replica: &Leases<RedisStore>| {
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
        assert!(counts.iter().all(|(_, leased)| *leased > 0), "{counts:?}");
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
        let replica = Leases::new(connected(options(topology)).await, BootClock, LENGTH);
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
