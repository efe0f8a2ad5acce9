//! Redirects of a cluster: to new nodes, and to addresses outside the cluster.

use std::net::TcpListener;

use super::servers::cluster::Cluster;
use super::servers::fake::Redirector;
use super::topologies::values;
use super::*;

/// CLUSTER SLOTS does not list a master without slots.
#[test]
fn slots_move_to_a_new_node_under_load_without_a_failed_request() {
    const SLOTS: usize = 20;
    let mut cluster = Cluster::start(2, 0);
    runtime().block_on(async {
        let seeds = endpoints(&cluster.addresses()[..1]);
        let store = &RedisStore::new(options(Topology::Cluster(seeds)));
        let plan = plan(1_000_000, Unit::Day);
        until("the store to be up", async || {
            for (value, _) in values(&cluster, &plan) {
                if try_take(store, &value, &plan).await.is_err() {
                    return false;
                }
            }
            true
        })
        .await;
        cluster.add_empty_master();
        let keys: Vec<(String, u16)> = (0..SLOTS)
            .map(|i| format!("moves{i}"))
            .map(|value| {
                let slot = slot_of(&value, &plan);
                (value, slot)
            })
            .collect();
        let (cluster, over) = (&cluster, &Cell::new(false));
        let load = keys.iter().map(async |(value, _)| {
            let mut taken = 0;
            while !over.get() {
                let decision = try_take(store, value, &plan).await.unwrap();
                assert_eq!(decision.used_before, taken, "{value}");
                taken += 1;
            }
            taken
        });
        let step = async |step: fn(&Cluster, u16, usize), slot: u16, to: usize| {
            step(cluster, slot, to);
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let moves = async {
            let ((_, other), to_new) = keys.split_first().unwrap();
            for (_, slot) in to_new {
                step(Cluster::begin_to_move, *slot, 2).await;
                step(Cluster::move_keys, *slot, 2).await;
            }
            // This makes weir read the slots; the new node still has none.
            for _ in 0..4 {
                let to = 1 - cluster.master_of(*other);
                step(Cluster::begin_to_move, *other, to).await;
                step(Cluster::move_keys, *other, to).await;
                step(Cluster::end_the_move, *other, to).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            for (_, slot) in to_new {
                step(Cluster::end_the_move, *slot, 2).await;
            }
            over.set(true);
        };
        let (taken, ()) = tokio::join!(futures_util::future::join_all(load), moves);
        assert!(taken.iter().all(|&taken| taken > 0), "{taken:?}");
        assert_eq!(cluster.masters[2].command(&["DBSIZE"]).int(), SLOTS as i64 - 1);
    });
}

fn slot_of(value: &str, plan: &Plan) -> u16 {
    key::slot(&weir_store::key_bytes(
        "weir:",
        &Key { domain: "test", entries: &[("key", value)] },
        plan,
        false,
    ))
}

/// An access list may forbid CLUSTER NODES.
#[test]
fn works_without_permission_to_list_nodes() {
    let cluster = Cluster::start(2, 0);
    for server in cluster.servers() {
        server.command(&["ACL", "SETUSER", "weir", "on", ">pw", "~*", "+@all", "-cluster|nodes"]);
    }
    runtime().block_on(async {
        let mut options = options(Topology::Cluster(endpoints(&cluster.addresses()[..1])));
        let login = &mut options.access.login;
        (login.username, login.password) = (Some("weir".into()), Some("pw".into()));
        let store = connected(options).await;
        let plan = plan(100, Unit::Day);
        let (value, slot) = values(&cluster, &plan)[0].clone();
        until("the node to be up", async || try_take(&store, &value, &plan).await.is_ok()).await;
        let start = try_take(&store, &value, &plan).await.unwrap().used_before;
        cluster.begin_to_move(slot, 1);
        cluster.move_keys(slot, 1);
        assert_eq!(try_take(&store, &value, &plan).await.unwrap().used_before, start + 1);
        cluster.end_the_move(slot, 1);
        assert_eq!(try_take(&store, &value, &plan).await.unwrap().used_before, start + 2);
    });
}

/// A node cannot send credentials elsewhere, with or without a host in its redirect.
#[test]
fn redirects_outside_the_cluster_are_not_followed() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    outside.set_nonblocking(true).unwrap();
    let port = outside.local_addr().unwrap().port();
    for redirect in [
        format!("MOVED 0 127.0.0.1:{port}"),
        format!("ASK 0 127.0.0.1:{port}"),
        format!("MOVED 0 :{port}"),
    ] {
        let node = Redirector::start(&redirect);
        runtime().block_on(async {
            let seed = Endpoint::Tcp("127.0.0.1".into(), node.port());
            let mut options = options(Topology::Cluster(vec![seed]));
            options.access.login.password = Some("secret".into());
            let store = connected(options).await;
            let taken = try_take(&store, "a", &plan(1, Unit::Day)).await;
            assert_eq!(taken, Err(StoreError::Unavailable), "{redirect}");
            assert_eq!(node.redirected(), 1, "{redirect}");
            assert!(node.logins() > 0, "the node itself is trusted");
            let error = outside.accept().unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{redirect}");
        });
    }
}
