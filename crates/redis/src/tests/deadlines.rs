//! The timeouts of requests, and `slow_after`.

use super::servers::proxy::Proxy;
use super::*;
use crate::pending_charge::Reply;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn calls_to_a_frozen_server_fail_at_once_except_those_in_flight() {
    let server = Server::start();
    runtime().block_on(async {
        let slow_after = Duration::from_millis(20);
        let store = connected(RedisOptions { slow_after, ..options(single(&server)) }).await;
        let plan = plan(100, Unit::Day);
        until("the connection to be up", async || try_take(&store, "up", &plan).await.is_ok())
            .await;
        server.stop();
        // A charge in flight waits for up to its own timeout.
        let mut first = std::pin::pin!(take_within(&store, "a", &plan, LONG));
        let mut waits = async || {
            let soon = Duration::from_millis(1);
            assert!(
                tokio::time::timeout(soon, &mut first).await.is_err(),
                "the first charge waits"
            );
        };
        until("the threshold to be missed", async || {
            waits().await;
            store.connections_slow() == 1
        })
        .await;
        assert_eq!(store.connections_down(), (1, 0), "the connection is not lost");
        // Its timeout is longer than the server is frozen.
        assert_eq!(take_within(&store, "b", &plan, LONG).await, Err(StoreError::TimedOut));
        waits().await;
        server.go_on();
        assert_eq!(first.await.map(|decision| decision.used_before), Ok(0));
        until("the connection to be up", async || try_take(&store, "up", &plan).await.is_ok())
            .await;
        assert_eq!(take_within(&store, "b", &plan, LONG).await.unwrap().used_before, 0);
    });
}

#[test]
fn small_timeouts_fail_by_the_callers_deadline() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let topology = local(proxy.port());
        let caller_deadline_below = Duration::from_millis(7);
        let store = connected(RedisOptions { caller_deadline_below, ..options(topology) }).await;
        proxy.stall();
        let plan = plan(100, Unit::Day);
        for (timeout, failed) in [(6, StoreError::CallerDeadline), (7, StoreError::TimedOut)] {
            assert_eq!(
                take_within(&store, "a", &plan, Duration::from_millis(timeout)).await,
                Err(failed),
                "{timeout}"
            );
        }
        assert_eq!(store.connections_down(), (1, 0), "the requests timed out before slow_after");
        assert_eq!(store.connections_slow(), 0);
    });
}

#[test]
fn charges_past_their_deadline_are_not_sent() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let topology = local(proxy.port());
        let store = connected(options(topology)).await;
        let plan = plan(100, Unit::Day);
        assert!(try_take(&store, "up", &plan).await.is_ok());
        proxy.stall();
        let (first, late, patient) = tokio::join!(
            take_within(&store, "first", &plan, LONG),
            async {
                tokio::task::yield_now().await;
                let late = take_within(&store, "late", &plan, Duration::from_millis(5)).await;
                proxy.resume();
                late
            },
            async {
                tokio::task::yield_now().await;
                take_within(&store, "patient", &plan, LONG).await
            },
        );
        assert!(first.is_ok() && patient.is_ok());
        assert_eq!(late, Err(StoreError::TimedOut));
        let exists =
            |value| server.command(&["EXISTS", &format!("weir:{{test|key={value}}}f86400")]);
        assert_eq!((exists("patient").int(), exists("late").int()), (1, 0));
    });
}

#[tokio::test(start_paused = true)]
async fn a_passed_deadline_ends_the_wait_before_its_timer() {
    let now = tokio::time::Instant::now();
    let end = now + Duration::from_millis(5);
    let reply = Arc::new(Reply::new(1, StoreError::TimedOut, Some(end), None));
    assert!(reply.is_awaited(now));
    assert!(!reply.is_awaited(end));
    let without_deadline = Reply::unawaited(1);
    assert!(without_deadline.is_awaited(end));
    without_deadline.take();
    assert!(!without_deadline.is_awaited(now));
}
