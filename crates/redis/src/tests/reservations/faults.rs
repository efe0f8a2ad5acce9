//! Reservations whose request is dropped, those whose outcome is unknown, and those that a node redirects.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use super::super::servers::cluster::Cluster;
use super::super::servers::proxy::Proxy;
use super::*;

fn is_pending(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Starts a store that is connected through a proxy.
async fn start(proxy: &Proxy) -> RedisStore {
    connected(options(local(proxy.port()))).await
}

#[test]
fn a_dropped_reservation_is_cancelled_once_it_is_made() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let store = start(&proxy).await;
        let plan = budget(100);
        assert_eq!(make(&store, &plan, "stays", reserve(1, 20)).await.unwrap().granted, 20);
        for id in ["goes", "stays"] {
            for sent in [false, true] {
                proxy.delay(Duration::from_millis(20));
                let mut reserving = Box::pin(make(&store, &plan, id, reserve(1, 50)));
                assert!(is_pending(reserving.as_mut()));
                if sent {
                    let before = server.command(&["INFO", "commandstats"]).text();
                    until("Redis to be asked", async || {
                        server.command(&["INFO", "commandstats"]).text() != before
                    })
                    .await;
                }
                drop(reserving);
                proxy.resume();
                until("it to be cancelled", async || used(&store, &plan).await == 20).await;
            }
        }
        assert_eq!(make(&store, &plan, "stays", settle(1)).await.unwrap().reserved, 20);
        let settled = make(&store, &plan, "goes", settle(0)).await.unwrap();
        assert_eq!(settled.reservation, ReservationResult::Unknown);
    });
}

#[test]
fn a_reservation_whose_answer_is_not_read_is_cancelled() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let store = start(&proxy).await;
        let plan = budget(30);
        assert_eq!(make(&store, &plan, "a", reserve(1, 20)).await.unwrap().granted, 20);
        let mut reserving = Box::pin(make(&store, &plan, "a", reserve(1, 20)));
        assert!(is_pending(reserving.as_mut()));
        until("it to land", async || used(&store, &plan).await == 30).await;
        drop(reserving);
        until("it to be cancelled", async || used(&store, &plan).await == 20).await;
        // One that is denied, and one that settles, change nothing when they are dropped.
        for (op, after) in [(reserve(15, 20), 20), (settle(7), 7)] {
            let mut making = Box::pin(make(&store, &plan, "a", op));
            assert!(is_pending(making.as_mut()));
            until("it to land", async || used(&store, &plan).await == after).await;
            drop(making);
            for _ in 0..3 {
                assert_eq!(used(&store, &plan).await, after);
            }
        }
    });
}

/// A batch that was denied as a whole has reserved nothing that could be cancelled.
#[test]
fn a_dropped_batch_that_was_denied_cancels_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let store = start(&proxy).await;
        let (plan, none) = (budget(100), Arc::new(Plan::new(vec![fixed(0)])));
        assert_eq!(make(&store, &plan, "a", reserve(1, 20)).await.unwrap().granted, 20);
        let (entries, others) = ([("key", "a")], [("key", "b")]);
        let reserving = Charge { hold: Some("a"), ..charge_of(&entries, &plan, reserve(1, 20)) };
        let batches = [
            (vec![reserving, charge_of(&others, &none, Op::Take(1))], 20),
            (vec![reserving, charge_of(&others, &none, Op::Take(0))], 20),
        ];
        for (charges, after) in batches {
            for answered in [false, true] {
                proxy.delay(Duration::from_millis(if answered { 0 } else { 20 }));
                let calls = store.counts().calls.load(Ordering::Relaxed);
                let mut denied = Box::pin(weir_store::conformance::charge(&store, &charges, true));
                assert!(is_pending(denied.as_mut()));
                until("it to be sent", async || {
                    store.counts().calls.load(Ordering::Relaxed) > calls
                })
                .await;
                if answered {
                    used(&store, &plan).await;
                }
                drop(denied);
                proxy.resume();
                for _ in 0..3 {
                    assert_eq!(used(&store, &plan).await, after);
                }
            }
        }
        assert_eq!(make(&store, &plan, "a", settle(1)).await.unwrap().reserved, 20);
    });
}

/// Where it is unknown what was made, nothing is sent again.
#[test]
fn a_reservation_without_a_reply_stays_charged() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let store = start(&proxy).await;
        let direct = connected(options(single(&server))).await;
        let plan = budget(100);
        // The reply is lost: charged once, and neither sent again nor cancelled.
        let mut sum = 0;
        for (id, op, after) in
            [("a", reserve(1, 20), 20), ("a", settle(5), 5), ("a", settle(5), 10)]
        {
            proxy.delay(Duration::from_secs(60));
            let made = make(&store, &plan, id, op);
            let cutting = async {
                until("it to be made", async || used(&direct, &plan).await != sum).await;
                proxy.cut();
                proxy.resume();
            };
            let (answer, ()) = tokio::join!(made, cutting);
            assert!(answer.is_err_and(|failed| !failed.is_refusal()), "{id}");
            until("it to be up", async || try_take(&store, "b", &plan).await.is_ok()).await;
            sum = used(&direct, &plan).await;
            assert_eq!(sum, after);
        }
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
