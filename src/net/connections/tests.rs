use super::*;
use std::future::poll_fn;
use std::task::Context;
use tokio::time::advance;

fn connections(max: usize) -> Arc<Connections> {
    with_overflow(max, 0)
}

fn with_overflow(max: usize, overflow: usize) -> Arc<Connections> {
    let limits = ConnectionLimits {
        listener: "test",
        setting: "test.max_connections",
        max,
        overflow,
        min_idle: Duration::from_secs(1),
    };
    Connections::new(limits, ConnectionCounts::default())
}

fn is_evicted(handle: &ConnectionHandle) -> bool {
    handle.poll_evicted(&Context::from_waker(std::task::Waker::noop())).is_ready()
}

/// Evicts all connections one by one and returns their indices.
fn eviction_order(
    connections: &Arc<Connections>,
    mut handles: Vec<Option<ConnectionHandle>>,
) -> Vec<usize> {
    let mut order = Vec::new();
    while connections.evict() {
        let evicted = |handle: &Option<ConnectionHandle>| handle.as_ref().is_some_and(is_evicted);
        let at = handles.iter().position(evicted).expect("one is evicted");
        handles[at] = None;
        order.push(at);
    }
    order
}

#[test]
fn unproven_connections_are_evicted_first_then_idle_then_stalled_ones() {
    let connections = connections(100);
    let handles: Vec<_> = (0..8).map(|_| connections.register()).collect();
    handles[1].set_busy(true);
    handles[2].count_request();
    handles[3].set_stalled(true);
    connections.tick();
    handles[4].count_request();
    handles[5].count_request();
    handles[5].set_busy(true);
    handles[6].count_request();
    (0..4).for_each(|_| connections.tick());
    handles[2].count_request();
    (0..4).for_each(|_| connections.tick());
    let order = eviction_order(&connections, handles.into_iter().map(Some).collect());
    assert_eq!(order, [0, 7, 4, 6, 2, 3]);
    assert_eq!(connections.counts.evicted.get(), 6);
    assert_eq!(connections.evicting.load(Ordering::Relaxed), 0);
    assert_eq!(connections.counts.open.get(), 0);
}

#[test]
fn a_greeting_delays_the_eviction_for_half_a_second() {
    let connections = connections(100);
    let mut handles: Vec<_> = (0..2).map(|_| connections.register()).collect();
    handles[0].set_greeted();
    // The third connects within half a second, the last after it.
    connections.tick();
    handles.push(connections.register());
    (0..2).for_each(|_| connections.tick());
    handles.push(connections.register());
    let order = eviction_order(&connections, handles.into_iter().map(Some).collect());
    assert_eq!(order, [1, 2, 0, 3]);
}

#[test]
fn a_connection_that_was_just_used_is_not_idle() {
    let connections = connections(100);
    let handle = connections.register();
    handle.count_request();
    for _ in 0..4 {
        assert!(!connections.evict());
        connections.tick();
    }
    assert!(connections.evict());
}

#[test]
fn a_connection_that_becomes_busy_stays_and_another_is_evicted() {
    let connections = connections(100);
    let (first, second) = (connections.register(), connections.register());
    assert!(connections.evict());
    first.set_busy(true);
    assert!(!is_evicted(&first) && !is_evicted(&second));
    assert_eq!(connections.evicting.load(Ordering::Relaxed), 0);
    assert!(connections.evict());
    assert!(is_evicted(&second));
    // It is not evicted later either.
    first.set_busy(false);
    assert!(!is_evicted(&first));
}

#[test]
fn many_are_evicted_in_order_though_they_are_ranked_in_batches() {
    let connections = connections(1_000);
    let mut handles: Vec<_> = (0..1_000).map(|_| Some(connections.register())).collect();
    let mut evicted = 0;
    while connections.evict() {
        assert!(is_evicted(handles[evicted].as_ref().unwrap()), "{evicted}");
        handles[evicted] = None;
        // Others connect and disconnect meanwhile.
        drop(connections.register());
        evicted += 1;
    }
    assert_eq!(evicted, 1_000);
}

#[test]
fn an_unproven_connection_is_evicted_before_idle_ones_that_were_ranked_earlier() {
    let connections = connections(100);
    let idle: Vec<_> = (0..10).map(|_| connections.register()).collect();
    idle.iter().for_each(ConnectionHandle::count_request);
    (0..4).for_each(|_| connections.tick());
    assert!(connections.evict());
    assert!(is_evicted(&idle[0]));
    let newcomer = connections.register();
    assert!(connections.evict());
    assert!(is_evicted(&newcomer) && !is_evicted(&idle[1]));
    drop(newcomer);
    assert!(connections.evict());
    assert!(is_evicted(&idle[1]));
    drop(idle);
    assert_eq!(connections.unproven.load(Ordering::Relaxed), 0);
}

/// Closes when it is evicted.
fn serve(handle: ConnectionHandle) {
    tokio::spawn(async move { poll_fn(|cx| handle.poll_evicted(cx)).await });
}

#[tokio::test(start_paused = true)]
async fn newcomers_replace_others_and_never_exceed_the_limit() {
    for max in [1, 2, 32] {
        let connections = connections(max);
        for _ in 0..100 {
            serve(connections.admit().await.expect("room"));
            assert!(connections.open() <= max);
        }
        assert_eq!(connections.counts.refused.get(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn eviction_starts_below_the_limit() {
    let connections = connections(32);
    let handles: Vec<_> = (0..30).map(|_| connections.register()).collect();
    let _newcomer = connections.admit().await.unwrap();
    assert!(is_evicted(&handles[0]), "evicted, though there is room while it closes");
    assert_eq!(connections.open(), 31);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_is_refused_only_if_all_others_are_busy() {
    let connections = connections(2);
    let busy: Vec<_> = (0..2).map(|_| connections.register()).collect();
    busy.iter().for_each(|handle| handle.set_busy(true));
    assert!(connections.admit().await.is_none());
    assert_eq!(connections.counts.refused.get(), 1);
    busy[0].set_busy(false);
    let waiting = tokio::spawn({
        let connections = connections.clone();
        async move { connections.admit().await.is_some() }
    });
    tokio::task::yield_now().await;
    assert!(is_evicted(&busy[0]));
    advance(ADMISSION_TIMEOUT / 2).await;
    drop(busy);
    assert!(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_wait_forever_for_a_connection_that_does_not_close() {
    let connections = connections(1);
    let _stuck = connections.register();
    let start = Instant::now();
    assert!(connections.admit().await.is_none());
    assert!(start.elapsed() >= ADMISSION_TIMEOUT && start.elapsed() < 2 * ADMISSION_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn if_all_are_busy_a_few_more_are_accepted_immediately() {
    let connections = with_overflow(2, 2);
    let busy = |handle: &ConnectionHandle| handle.set_busy(true);
    let within: Vec<_> = (0..2).map(|_| connections.register()).collect();
    within.iter().for_each(busy);
    assert!(within.iter().all(|handle| !handle.is_overflow()));
    let start = Instant::now();
    let first = connections.admit().await.unwrap();
    busy(&first);
    let second = connections.admit().await.unwrap();
    assert!(first.is_overflow() && second.is_overflow());
    assert_eq!(start.elapsed(), Duration::ZERO);
    // Newcomers beyond the limit replace each other.
    serve(second);
    let third = connections.admit().await.unwrap();
    assert!(third.is_overflow());
    busy(&third);
    assert!(connections.admit().await.is_none());
    drop((within, first));
    assert!(!connections.admit().await.unwrap().is_overflow());
}
