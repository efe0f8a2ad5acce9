//! Requests' own budgets, and the threshold of a connection.

use super::servers::proxy::Proxy;
use super::*;

/// Takes one hit within a budget.
async fn take_within(store: &RedisStore, value: &str, plan: &Arc<Plan>, millis: u64) -> Answer {
    let key = Key { domain: "test", entries: &[("key", value)] };
    let one = Charge { key, plan, op: Op::Take(1), hold: None, role: Role::Enforced };
    let mut answers = Answers::new();
    let batch = Batch {
        charges: &[one],
        together: false,
        quota_passes: false,
        budget: Duration::from_millis(millis),
        on_failure: None,
    };
    store.charge(batch, &mut answers).await;
    answers[0]
}

#[test]
fn a_frozen_server_answers_at_once_after_the_threshold_but_to_the_first() {
    let server = Server::start();
    runtime().block_on(async {
        let slow_after = Duration::from_millis(20);
        let store = RedisStore::new(Options { slow_after, ..options(single(&server)) });
        store.answered().await;
        let plan = plan(100, Unit::Day);
        until("it to be up", async || try_take(&store, "up", &plan).await.is_ok()).await;
        server.stop();
        // In flight, it waits for its own budget.
        let mut first = std::pin::pin!(take_within(&store, "a", &plan, 60_000));
        let mut waits = async || {
            let soon = Duration::from_millis(1);
            assert!(tokio::time::timeout(soon, &mut first).await.is_err(), "it waits");
        };
        until("the threshold to be missed", async || {
            waits().await;
            store.connections_down() == (1, 1)
        })
        .await;
        // Its budget is longer than the server stands still.
        assert_eq!(take_within(&store, "b", &plan, 60_000).await, Err(StoreError::TimedOut));
        waits().await;
        server.go_on();
        assert_eq!(first.await.map(|decision| decision.used_before), Ok(0));
        until("it to be up", async || try_take(&store, "up", &plan).await.is_ok()).await;
        assert_eq!(take_within(&store, "b", &plan, 60_000).await.unwrap().used_before, 0);
    });
}

#[test]
fn only_a_small_budget_is_its_callers_deadline() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let topology = Topology::Single(Endpoint::Tcp("127.0.0.1".into(), proxy.port()));
        let caller_deadline_below = Duration::from_millis(7);
        let store = RedisStore::new(Options { caller_deadline_below, ..options(topology) });
        store.answered().await;
        proxy.stall();
        let plan = plan(100, Unit::Day);
        for (budget, failed) in [(6, StoreError::CallerDeadline), (7, StoreError::TimedOut)] {
            assert_eq!(take_within(&store, "a", &plan, budget).await, Err(failed), "{budget}");
        }
        assert_eq!(store.connections_down(), (1, 0), "their budgets ended, and not the threshold");
    });
}

#[test]
fn who_waits_behind_a_slow_round_trip_joins_the_next_only_in_time() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    runtime().block_on(async {
        let topology = Topology::Single(Endpoint::Tcp("127.0.0.1".into(), proxy.port()));
        let store = RedisStore::new(options(topology));
        store.answered().await;
        let plan = plan(100, Unit::Day);
        assert!(try_take(&store, "up", &plan).await.is_ok());
        proxy.stall();
        let (first, late, patient) = tokio::join!(
            take_within(&store, "first", &plan, 60_000),
            async {
                tokio::task::yield_now().await;
                let late = take_within(&store, "late", &plan, 5).await;
                proxy.resume();
                late
            },
            async {
                tokio::task::yield_now().await;
                take_within(&store, "patient", &plan, 60_000).await
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
async fn a_deadline_that_passed_ends_the_wait_before_its_timer_does() {
    let now = Instant::now();
    let end = now + Duration::from_millis(5);
    let reply = Reply::new(1, StoreError::TimedOut, Some(end));
    assert!(reply.is_awaited(now));
    assert!(!reply.is_awaited(end));
    let unhurried = Reply::new(1, StoreError::TimedOut, None);
    assert!(unhurried.is_awaited(end));
    unhurried.take();
    assert!(!unhurried.is_awaited(now));
}
