//! The conformance suite of all stores, on a single server and on a cluster.

use proptest::prelude::*;

use super::servers::cluster::Cluster;
use super::servers::sentinel::{MASTER, Sentinels};
use super::{model, *};
use crate::counter::lone_window;
use weir_store::conformance;
use weir_store::{Operations, States};

pub(super) fn conforms(topology: Topology) {
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = manual(topology, &clock);
        until("all connections to be up", async || {
            store.answered().await;
            try_take(&store, "up", &plan(1, Unit::Day)).await.is_ok()
                && try_take(&store, "yet", &plan(1, Unit::Day)).await.is_ok()
                && try_take(&store, "now", &plan(1, Unit::Day)).await.is_ok()
        })
        .await;
        conformance::admits_n_in_each_window(&store, &clock).await;
        conformance::counts_each_key_separately(&store).await;
        conformance::looks_and_refunds(&store).await;
        conformance::charges_all_or_none(&store).await;
        conformance::holds::replaces_a_hold_of_the_same_id(&store, &clock).await;
        model::steps_back(&store, &clock).await;
        conformance::a_limit_of_zero_denies(&store).await;
        conformance::keeps_the_longest_debts(&store, &clock).await;
        conformance::operations::conforms(&store, &clock).await;
        conformance::replicas::conforms(&store, &clock).await;
        conformance::reservations::conforms(&store, &clock).await;
        conformance::reservations::keeps_many_open(&store, &clock).await;
        conformance::states::conforms(&store, &clock).await;
        conformance::bans::conforms(&store, &clock).await;
    });
}

/// Random schedules get exactly the answers that the memory store gives.
pub(super) fn agrees(topology: Topology, cases: u32, schedules: BoxedStrategy<Vec<model::Step>>) {
    let runtime = runtime();
    let clock = Arc::new(ManualClock::new(DAWN));
    let store = manual(topology, &clock);
    runtime.block_on(until("all connections to be up", async || {
        store.answered().await;
        let (total, down) = store.connections_down();
        total > 0 && down == 0 && store.connections_slow() == 0
    }));
    store_agrees(&runtime, &store, &clock, cases, schedules);
}

fn store_agrees(
    runtime: &tokio::runtime::Runtime,
    store: &impl States,
    clock: &ManualClock,
    cases: u32,
    schedules: BoxedStrategy<Vec<model::Step>>,
) {
    let domains = std::cell::Cell::new(0);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let fresh = |name| {
        domains.set(domains.get() + 1);
        format!("{name}-{}", domains.get())
    };
    let run = runner.run(&schedules, |steps| {
        let domain = fresh("random");
        runtime.block_on(model::agrees(store, clock, &domain, &steps, || {}));
        Ok(())
    });
    run.unwrap();
    let run = runner.run(&model::schedules(false), |steps| {
        let domain = fresh("at-once");
        runtime.block_on(model::agrees_at_once(store, clock, &domain, &steps));
        Ok(())
    });
    run.unwrap();
    // Each read has a connection of its own.
    let few = ProptestConfig { cases: cases / 6, ..runner.config().clone() };
    let mut runner = proptest::test_runner::TestRunner::new(few);
    let run = runner.run(&model::schedules(false), |steps| {
        let domain = fresh("read");
        runtime.block_on(model::reads_agree(store, clock, &domain, &steps));
        Ok(())
    });
    run.unwrap();
}

/// Schedules of domains with `charge: together`, and of others.
pub(super) fn domains() -> BoxedStrategy<Vec<model::Step>> {
    model::schedules(true).prop_map(model::of_one_domain).boxed()
}

#[test]
fn a_single_server_conforms() {
    conforms(single(&Server::start()));
}

#[test]
#[ignore = "takes two minutes: scripts/test --all runs it"]
fn reservations_conform_at_length() {
    let (server, cluster) = (Server::start(), Cluster::start(3, 0));
    for topology in [single(&server), Topology::Cluster(endpoints(&cluster.addresses()))] {
        runtime().block_on(async {
            let clock = Arc::new(ManualClock::new(DAWN));
            let store = manual(topology, &clock);
            until("all connections to be up", async || {
                store.answered().await;
                let (total, down) = store.connections_down();
                total > 0 && down == 0
            })
            .await;
            conformance::reservations::conforms_at_length(&store, &clock).await;
        });
    }
}

#[test]
fn replicas_share_strikes_and_bans() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(DAWN));
    let stores = [manual(single(&server), &clock), manual(single(&server), &clock)];
    let window = Limit::fixed_window(1, Unit::Minute, 1).unwrap();
    let lengths = [60 * SECOND].into();
    let ban = weir_limit::Ban { after: 4, within: 60 * SECOND, lengths, forget: 0 };
    let plan = Arc::new(Plan::new(vec![window]).with_ban(ban));
    runtime().block_on(async {
        for store in &stores {
            store.answered().await;
        }
        let take =
            async |replica: usize| conformance::take(&stores[replica], "ban", "a", &plan, 1).await;
        assert!(take(0).await.allowed);
        for strike in 1..=4 {
            assert_eq!(take(strike % 2).await.ban_begins, strike == 4);
        }
        for replica in [0, 1] {
            assert!(take(replica).await.banned);
        }
    });
}

#[test]
#[ignore = "takes two minutes: scripts/test --all runs it"]
fn bans_agree_with_the_model_at_length() {
    let (server, cluster) = (Server::start(), Cluster::start(3, 0));
    for topology in [single(&server), Topology::Cluster(endpoints(&cluster.addresses()))] {
        agrees(topology, 1_000, model::schedules_of_bans().boxed());
    }
}

#[test]
fn a_single_server_agrees_with_the_model() {
    agrees(single(&Server::start()), 200, domains());
}

/// From the beginning of time to its end.
#[test]
fn a_single_server_agrees_with_the_model_at_all_times() {
    let server = Server::start();
    let runtime = runtime();
    let clock = Arc::new(ManualClock::new(DAWN));
    let store = manual(single(&server), &clock);
    runtime.block_on(store.answered());
    let domains = std::cell::Cell::new(0);
    let config =
        ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    // At 0 the scripts ask for the server's time.
    let from = prop_oneof![Just(1), Just(DAWN), Just((1 << 52) - 3_600 * SECOND)];
    // A number distinguishes half a million windows; a real key has expired by then, but not here.
    let holds = |plan: &Plan| lone_window(plan).is_none_or(|(_, window)| window.period > 1 << 50);
    let schedules = (from, model::long_schedules(true, holds).prop_map(model::of_one_domain));
    let run = runner.run(&schedules, |(from, steps)| {
        clock.set(from);
        domains.set(domains.get() + 1);
        let domain = format!("ends-{}", domains.get());
        runtime.block_on(model::agrees(&store, &clock, &domain, &steps, || {}));
        Ok(())
    });
    run.unwrap();
}

#[test]
fn a_master_known_by_sentinels_conforms() {
    let group = Sentinels::start();
    let sentinels = endpoints(&group.addresses());
    conforms(Topology::Sentinel { master: MASTER.into(), sentinels });
}

#[test]
fn a_cluster_conforms() {
    let cluster = Cluster::start(3, 0);
    conforms(Topology::Cluster(endpoints(&cluster.addresses())));
}

#[test]
fn a_cluster_agrees_with_the_model() {
    let cluster = Cluster::start(3, 0);
    agrees(Topology::Cluster(endpoints(&cluster.addresses())), 120, domains());
}

#[test]
fn two_servers_agree_with_the_model() {
    let (main, second) = (Server::start(), Server::start());
    let runtime = runtime();
    let clock = Arc::new(ManualClock::new(DAWN));
    let store = per_second::two_servers(&main, &second, &clock);
    runtime.block_on(store.connect());
    store_agrees(&runtime, &store, &clock, 120, domains());
}

/// Eight threads, each with its own store and connection, like eight replicas.
#[test]
fn racing_replicas_admit_exactly_n() {
    let server = Server::start();
    let stores = || connected(options(single(&server)));
    conformance::admits_exactly_n_of_racing(&stores);
    conformance::operations::grants_exactly_n_of_racing(&stores);
    conformance::reservations::reserves_at_most_n_of_racing(&stores);
}

/// A batch that is charged together is one call, at any load.
#[test]
fn a_batch_is_never_split_between_trips() {
    let server = Server::start();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(RedisStore::new(options(single(&server))));
        store.answered().await;
        let (wide, narrow) = (plan(1_000_000, Unit::Day), plan(50, Unit::Day));
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (store, wide, narrow) = (store.clone(), wide.clone(), narrow.clone());
            asking.spawn(async move {
                let (a, b) = ([("key", "a")], [("key", "b")]);
                let take_of = |entries, plan| Charge {
                    key: Key { domain: "test", entries },
                    plan,
                    op: Op::Take(1),
                    hold: None,
                    role: Role::Enforced,
                };
                for _ in 0..250 {
                    charge(&*store, &[take_of(&a, &wide), take_of(&b, &narrow)], true).await;
                }
            });
        }
        asking.join_all().await;
        for value in ["a", "b"] {
            let entries = [("key", value)];
            let look = charge_of(&entries, &wide, Op::Take(0));
            assert_eq!(charge(&*store, &[look], true).await[0].used_before, 50, "{value}");
        }
    });
}

/// A batch may have more rules than a byte counts.
#[test]
fn batches_may_be_large() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let values: Vec<String> = (0..600).map(|i| i.to_string()).collect();
        let entries: Vec<_> = values.iter().map(|value| [("key", value.as_str())]).collect();
        let plans: Vec<_> = (0..600).map(|n| plan(n + 1, Unit::Day)).collect();
        let two = |n| {
            let limit = |unit| Limit::fixed_window(n, unit, 1).unwrap();
            Arc::new(Plan::new(vec![limit(Unit::Hour), limit(Unit::Day)]))
        };
        let several: Vec<_> = (0..600).map(|n| two(n + 1)).collect();
        for plans in [plans, several] {
            for together in [true, false] {
                let charges: Vec<_> = entries
                    .iter()
                    .zip(&plans)
                    .map(|(entries, plan)| Charge {
                        key: Key { domain: "test", entries },
                        plan,
                        op: Op::Take(1),
                        hold: None,
                        role: Role::Shadow,
                    })
                    .collect();
                let decision = charge(&store, &charges, together).await;
                for (n, decision) in (1..).zip(decision) {
                    assert_eq!(decision.used_before, 0, "{n}");
                    assert_eq!(decision.remaining, u64::saturating_sub(n, 1));
                }
            }
        }
    });
}
