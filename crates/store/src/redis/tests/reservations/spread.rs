//! Batches that are charged together on several nodes of a cluster, or on two servers, and denied.

use super::super::servers::cluster::Cluster;
use super::*;
use crate::Operations;
use crate::conformance::charge;
use crate::per_second::PerSecond;

/// Reserves for the first of two keys; the second denies.
async fn reserve_denied(store: &impl Store, values: &[String; 2], plan: &Arc<Plan>, id: &str) {
    let none = super::super::plan(0, Unit::Second);
    let entries = values.each_ref().map(|value| [("key", value.as_str())]);
    let reserve = Charge { hold: Some(id), ..charge_of(&entries[0], plan, reserve(1, 9)) };
    let denied = charge_of(&entries[1], &none, Op::Take(1));
    let decisions = charge(store, &[reserve, denied], true).await;
    assert_eq!((decisions[0].granted, decisions[1].allowed), (9, false));
}

/// What a denied batch reserves is cancelled, and nothing that its id had before.
async fn cancels(store: &impl Store, values: &[String; 2]) {
    let plan = budget(100);
    let entries = [("key", values[0].as_str())];
    let one = async |op, id| {
        let one = Charge { hold: Some(id), ..charge_of(&entries, &plan, op) };
        charge(store, &[one], false).await.swap_remove(0)
    };
    assert_eq!(one(reserve(1, 20), "before").await.granted, 20);
    for id in ["other", "before", "before"] {
        reserve_denied(store, values, &plan, id).await;
        assert_eq!(one(Op::Take(0), id).await.used_before, 20, "{id}");
    }
    assert_eq!(one(settle(3), "other").await.reservation, ReservationResult::Unknown);
    assert_eq!(one(settle(3), "before").await.reserved, 20);
    assert_eq!(one(Op::Take(0), "").await.used_before, 6);
}

#[test]
fn a_denied_batch_across_nodes_reserves_nothing() {
    let cluster = Cluster::start(3, 0);
    runtime().block_on(async {
        let store = RedisStore::new(options(Topology::Cluster(endpoints(&cluster.addresses()))));
        let plan = budget(100);
        let values = topologies::values(&cluster, &plan);
        for (value, _) in &values {
            let up =
                async || try_take(&store, value, &super::super::plan(1, Unit::Day)).await.is_ok();
            until("the store to be up", up).await;
        }
        cancels(&store, &[values[0].0.clone(), values[1].0.clone()]).await;
    });
}

#[test]
fn a_denied_batch_across_servers_reserves_nothing() {
    let (main, other) = (Server::start(), Server::start());
    runtime().block_on(async {
        let store = |server| RedisStore::new(options(single(server)));
        let store = PerSecond::new(store(&main), Some(store(&other)));
        store.connect().await;
        cancels(&store, &["a".to_owned(), "a".to_owned()]).await;
    });
}

/// A node that redirects has reserved nothing: what it was asked is sent on, once.
#[test]
fn redirected_charges_are_made_once() {
    let cluster = Cluster::start(2, 0);
    runtime().block_on(async {
        let store = RedisStore::new(options(Topology::Cluster(endpoints(&cluster.addresses()))));
        let plan = budget(100);
        let (value, slot) = topologies::values(&cluster, &plan)[0].clone();
        let entries = [("key", value.as_str())];
        let make = async |op, id| {
            let one = Charge { hold: Some(id), ..charge_of(&entries, &plan, op) };
            charge_within(&store, one, Duration::from_secs(10)).await
        };
        until("the store to be up", async || make(Op::Take(0), "").await.is_ok()).await;
        assert_eq!(make(reserve(1, 9), "a").await.unwrap().granted, 9);
        let to = 1 - cluster.master_of(slot);
        cluster.begin_to_move(slot, to);
        cluster.move_keys(slot, to);
        // Both keys are on the other node.
        assert_eq!(make(settle(4), "a").await.unwrap().reserved, 9);
        // A record that exists on neither node: the slot has to arrive first.
        assert_eq!(make(reserve(1, 9), "b").await, Err(StoreError::Unavailable));
        cluster.end_the_move(slot, to);
        assert_eq!(make(reserve(1, 9), "b").await.unwrap().granted, 9);
        assert_eq!(make(settle(1), "b").await.unwrap().reserved, 9);
        assert_eq!(make(Op::Take(0), "").await.unwrap().used_before, 5);
    });
}
