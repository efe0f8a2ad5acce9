//! The bucket of `RL.REDUCE` in Redis.

use proptest::prelude::*;

use super::servers::cluster::Cluster;
use super::*;
use weir_limit::ReduceBucket;

fn agrees(topology: Topology, cases: u32) {
    let runtime = runtime();
    let clock = Arc::new(ManualClock::new(DAWN));
    let store = manual(topology, &clock);
    runtime.block_on(until("all connections to be up", async || {
        store.answered().await;
        let (total, down) = store.connections_down();
        total > 0 && down == 0 && store.connections_slow() == 0
    }));
    let domains = Cell::new(0);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let run = proptest::test_runner::TestRunner::new(config).run(
        &reduce_model::schedules(true),
        |schedule| {
            clock.set(DAWN);
            domains.set(domains.get() + 1);
            let domain = format!("reduce-{}", domains.get());
            // Keys expire by the server's clock, seconds after they need to.
            runtime.block_on(reduce_model::agrees(&store, &clock, &domain, &schedule, false));
            Ok(())
        },
    );
    run.unwrap();
}

#[test]
fn buckets_agree_with_the_model() {
    agrees(single(&Server::start()), 500);
}

#[test]
fn buckets_on_a_cluster_agree_with_the_model() {
    let cluster = Cluster::start(3, 0);
    agrees(Topology::Cluster(endpoints(&cluster.addresses())), 60);
}

#[test]
fn buckets_are_kept_for_as_long_as_it_takes_to_fill_them() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        for (max, refill, interval, expected) in [
            (10, 10, 60_000, 60_000),
            (10, 3, 60_000, 240_000),
            (10, u32::MAX, 60_000, 60_000),
            (u32::MAX, 1, i64::MAX as u64, 1_000 * 365 * 86_400_000),
        ] {
            let bucket = ReduceBucket { max, refill, interval, strict: false, at: None };
            let plan = Arc::new(bucket.plan());
            let charge = charge_of(&[("RL", "a")], &plan, Op::Take(1));
            let timeout = Duration::from_secs(10);
            assert_eq!(
                charge_within(&store, charge, timeout).await.unwrap().remaining,
                u64::from(max) - 1
            );
            let key = format!("weir:{{test|RL=a}}r{max}/{refill}/{interval}ms");
            let left = server.command(&["PTTL", &key]).int();
            assert!((expected - 5_000..=expected + 1).contains(&left), "{key} for {left} ms");
            // A look changes neither the state nor its expiry.
            let stored = || {
                let value = server.command(&["GETRANGE", &key, "0", "4"]);
                (format!("{value:?}"), server.command(&["PEXPIRETIME", &key]).int())
            };
            let before = stored();
            let look = charge_of(&[("RL", "a")], &plan, Op::Take(0));
            assert_eq!(
                charge_within(&store, look, timeout).await.unwrap().remaining,
                u64::from(max) - 1
            );
            assert_eq!(stored(), before);
        }
    });
}
