//! Requests dropped during a round trip: holds with an id are released.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::servers::proxy::Proxy;
use super::*;
use weir_store::conformance::holds::concurrency;

async fn held(store: &RedisStore, plan: &Arc<Plan>) -> u64 {
    make(store, plan, "look", Op::Take(0)).await.unwrap().used_before
}

fn is_pending(future: std::pin::Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[test]
fn a_dropped_hold_is_undone_once_it_is_taken() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let store = connected(options(local(proxy.port()))).await;
        let plan = concurrency(10, true);
        assert!(make(&store, &plan, "stays", Op::Take(1)).await.is_ok());
        for sent in [false, true] {
            proxy.delay(Duration::from_millis(20));
            let mut taking = Box::pin(make(&store, &plan, "goes", Op::Take(3)));
            assert!(is_pending(taking.as_mut()));
            if sent {
                let before = server.command(&["INFO", "commandstats"]).text();
                until("Redis to be asked", async || {
                    server.command(&["INFO", "commandstats"]).text() != before
                })
                .await;
            }
            drop(taking);
            proxy.resume();
            until("it to be released", async || held(&store, &plan).await == 1).await;
        }
    });
}

#[test]
fn a_taken_hold_whose_answer_is_not_read_is_undone() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let store = connected(options(local(proxy.port()))).await;
        let plan = concurrency(2, true);
        let mut taking = Box::pin(make(&store, &plan, "a", Op::Take(1)));
        assert!(is_pending(taking.as_mut()));
        until("it to land", async || held(&store, &plan).await == 1).await;
        drop(taking);
        until("it to be released", async || held(&store, &plan).await == 0).await;
        // A retry that is denied leaves the hold of the first call.
        assert!(make(&store, &plan, "a", Op::Take(1)).await.unwrap().allowed);
        let mut denied = Box::pin(make(&store, &plan, "a", Op::Take(3)));
        assert!(is_pending(denied.as_mut()));
        for _ in 0..3 {
            assert_eq!(held(&store, &plan).await, 1);
        }
        drop(denied);
        for _ in 0..3 {
            assert_eq!(held(&store, &plan).await, 1);
        }
    });
}

/// Calls are cancelled at any moment.
#[test]
fn keeps_only_holds_that_were_answered() {
    const CALLS: u64 = 600;
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let store = Arc::new(connected(options(local(proxy.port()))).await);
        let plan = concurrency(100_000, true);
        proxy.slow_some(3, Duration::from_micros(100)..Duration::from_millis(2));
        let mut calls = tokio::task::JoinSet::new();
        for i in 0..CALLS {
            let (store, plan) = (store.clone(), plan.clone());
            calls.spawn(async move {
                let id = i.to_string();
                let mut taking = pin!(make(&store, &plan, &id, Op::Take(1)));
                let mut polls = i % 7;
                let answered = std::future::poll_fn(|cx| match taking.as_mut().poll(cx) {
                    Poll::Ready(answer) => Poll::Ready(Some(answer.unwrap().allowed)),
                    Poll::Pending if polls == 0 => Poll::Ready(None),
                    Poll::Pending => {
                        polls -= 1;
                        // Poll again soon, even without an answer.
                        if i % 3 > 0 {
                            cx.waker().wake_by_ref();
                        }
                        Poll::Pending
                    }
                });
                u64::from(answered.await == Some(true))
            });
            if i % 10 == 0 {
                tokio::time::sleep(Duration::from_micros(i)).await;
            }
        }
        let answered: u64 = calls.join_all().await.into_iter().sum();
        println!("{answered} of {CALLS} were answered");
        assert!((1..CALLS).contains(&answered));
        until("the others to be released", async || held(&store, &plan).await == answered).await;
    });
}
