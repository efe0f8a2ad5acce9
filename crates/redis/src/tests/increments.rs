//! Hits added by plain `INCRBY`, whatever has happened to their key.

use std::num::NonZeroU32;

use super::servers::proxy::Proxy;
use super::*;
use weir_limit::UpTo;

const KEY: &str = "weir:{test|key=a}f86400";

/// Operations that always need a script.
const ADD: Op = Op::Add { hits: 3, limits: 1 };
const UP_TO: Op = Op::UpTo(UpTo { least: 1, most: 2, share: NonZeroU32::MIN });

/// One window in a counter's number.
const WINDOW: i64 = 1 << 33;

fn plain(store: &RedisStore) -> u64 {
    store.counts().plain.load(Ordering::Relaxed)
}

/// Returns a store that has seen the key's window, and charged it three times.
async fn with_open_window(server: &Server, plan: &Arc<Plan>) -> RedisStore {
    let store = connected(options(single(server))).await;
    for used in 0..3 {
        assert_eq!(try_take(&store, "a", plan).await.unwrap().used_before, used);
    }
    assert_eq!(plain(&store), 2);
    store
}

fn number(server: &Server) -> i64 {
    server.command(&["GET", KEY]).text().parse().unwrap()
}

fn set(server: &Server, number: i64) {
    server.command(&["SET", KEY, &number.to_string(), "KEEPTTL"]);
}

/// Checks that the key has an expiry, of up to its window.
fn assert_expires(server: &Server) {
    let left = server.command(&["PTTL", KEY]).int();
    assert!((1..=86_400_001).contains(&left), "{left}");
}

async fn used(store: &RedisStore, plan: &Arc<Plan>) -> u64 {
    try_take(store, "a", plan).await.unwrap().used_before
}

#[test]
fn charges_of_an_open_window_stay_in_order() {
    let server = Server::start();
    runtime().block_on(async {
        let plan = plan(100, Unit::Day);
        let store = with_open_window(&server, &plan).await;
        let charge_of = |op| {
            let key = Key { domain: "test", entries: &[("key", "a")] };
            Charge { key, plan: &plan, op, hold: None, role: Role::Enforced }
        };
        let (take, look, back) = (Op::Take(2), Op::Take(0), Op::Refund(3));
        for (ops, befores, plain_ones) in [
            (vec![take, look, take], vec![3, 5, 5], 1),
            (vec![look, take], vec![7, 7], 0),
            (vec![take, back, take, look], vec![9, 8, 8, 10], 0),
            (vec![take, Op::Take(1 << 16), take], vec![10, 12, 65_548], 0),
            // Denied, it is charged its least.
            (vec![take, ADD, take], vec![65_550, 65_552, 65_555], 0),
            (vec![ADD, take, UP_TO, take], vec![65_557, 65_560, 65_562, 65_563], 0),
        ] {
            let before = plain(&store);
            let charges: Vec<_> = ops.iter().map(|&op| charge_of(op)).collect();
            let decision = charge(&store, &charges, false).await;
            let used: Vec<_> = decision.iter().map(|decision| decision.used_before).collect();
            assert_eq!((used, plain(&store) - before), (befores, plain_ones), "{ops:?}");
        }
        assert_expires(&server);
    });
}

/// `INCRBY` adds to a window that is over by the time of the round trip.
#[test]
fn hits_of_a_window_that_just_ended_are_charged_again() {
    let server = Server::start();
    runtime().block_on(async {
        let plan = plan(2, Unit::Day);
        let store = with_open_window(&server, &plan).await;
        let full = number(&server);
        set(&server, full - WINDOW);
        // The script has to be sent again as well.
        server.command(&["SCRIPT", "FLUSH"]);
        let decision = try_take(&store, "a", &plan).await.unwrap();
        assert!(decision.allowed);
        assert_eq!((decision.used_before, number(&server)), (0, full - 2));
        assert_eq!(plain(&store), 3);
        assert_expires(&server);
        assert_eq!(used(&store, &plan).await, 1);
        assert_eq!(plain(&store), 4);
    });
}

#[test]
fn a_deleted_key_starts_over_and_expires() {
    let server = Server::start();
    runtime().block_on(async {
        let plan = plan(5, Unit::Day);
        let store = with_open_window(&server, &plan).await;
        let three = number(&server);
        server.command(&["FLUSHALL"]);
        assert_eq!(used(&store, &plan).await, 0);
        assert_eq!((number(&server), plain(&store)), (three - 2, 3));
        assert_expires(&server);
        // Several charges of one round trip.
        server.command(&["FLUSHALL"]);
        let key = Key { domain: "test", entries: &[("key", "a")] };
        let one = Charge { key, plan: &plan, op: Op::Take(1), hold: None, role: Role::Enforced };
        let decision = charge(&store, &[one; 7], false).await;
        assert_eq!(decision.iter().filter(|decision| decision.allowed).count(), 5);
        assert_eq!(number(&server), three + 4);
        assert_expires(&server);
    });
}

/// The request stopped waiting, or the reply never comes: the key that INCRBY created is deleted.
#[test]
fn a_deleted_key_does_not_stay_without_an_expiry() {
    for lost in [false, true] {
        let server = Server::start();
        let proxy = Proxy::start(server.port());
        runtime().block_on(async {
            let plan = plan(5, Unit::Day);
            let endpoint = Endpoint::Tcp("127.0.0.1".into(), proxy.port());
            let store = connected(options(Topology::Single(endpoint))).await;
            for before in 0..2 {
                assert_eq!(used(&store, &plan).await, before);
            }
            server.command(&["FLUSHALL"]);
            proxy.delay(Duration::from_millis(500));
            let taking = tokio::time::timeout(Duration::from_millis(50), used(&store, &plan));
            assert!(taking.await.is_err());
            until("the hits to land", async || server.command(&["PTTL", KEY]).int() == -1).await;
            if lost {
                proxy.reset();
            }
            proxy.resume();
            until("the key to go", async || server.command(&["EXISTS", KEY]).int() == 0).await;
            assert_eq!(used(&store, &plan).await, 0);
            assert_expires(&server);
        });
    }
}

/// A number of no window, as a plain INCRBY leaves it where there was no key: the next charge starts a
/// window. In 2049, when such a number is not simply taken for one of a past window.
#[test]
fn a_number_of_no_window_counts_nothing() {
    let server = Server::start();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(700_000 * 3_600 * SECOND));
        let plan = plan(5, Unit::Hour);
        let admits = Limit::fixed_window(5, Unit::Hour, 1).unwrap();
        let admits = Arc::new(Plan::new(vec![Limit { charge_denied: false, ..admits }]));
        let key = Key { domain: "test", entries: &[("key", "a")] };
        let charge_of = |plan, op| Charge { key, plan, op, hold: None, role: Role::Enforced };
        for (first, together) in [
            (charge_of(&plan, Op::Take(1)), false),
            (charge_of(&plan, Op::Take(1)), true),
            (charge_of(&admits, Op::Take(1)), false),
            (charge_of(&plan, Op::Take(0)), false),
            (charge_of(&plan, Op::Refund(2)), false),
            (charge_of(&plan, Op::Refund(2)), true),
            (charge_of(&plan, ADD), false),
            (charge_of(&plan, UP_TO), false),
            (charge_of(&admits, UP_TO), true),
        ] {
            let written =
                if together { "weir:{test}|key=a|f3600" } else { "weir:{test|key=a}f3600" };
            server.command(&["DEL", written]);
            server.command(&["INCRBY", written, "4"]);
            let store = manual(single(&server), &clock);
            store.answered().await;
            let decision = charge(&store, &[first], together).await.swap_remove(0);
            assert_eq!(decision.used_before, 0, "{first:?}");
            let taken = first.op.charged(&decision);
            let next =
                charge(&store, &[charge_of(&plan, Op::Take(1))], together).await.swap_remove(0);
            assert_eq!(next.used_before, taken, "{first:?}");
            let left = server.command(&["PTTL", written]).int();
            assert!((1..=3_610_001).contains(&left), "{left} {first:?}");
        }
    });
}

/// A key whose hits are refunded in the call that wrote it expires at once: what is taken before that stays.
#[test]
fn hits_behind_refunded_ones_outlive_them() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let plan = plan(5, Unit::Day);
        for i in 0..100 {
            let (value, nothing) = (i.to_string(), Op::Add { hits: 0, limits: 1 });
            let entries = [("key", value.as_str())];
            let refunded =
                [nothing, Op::Take(1), Op::Refund(1)].map(|op| charge_of(&entries, &plan, op));
            charge(&store, &refunded, false).await;
            assert_eq!(try_take(&store, &value, &plan).await.unwrap().used_before, 0);
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert_eq!(take(&store, "test", &value, &plan, 0).await.used_before, 1, "{value}");
        }
    });
}

#[test]
fn foreign_values_fail_and_stay() {
    let server = Server::start();
    runtime().block_on(async {
        let plan = plan(5, Unit::Day);
        for garbage in ["text", "1.5", "-5", "-1", "9007199254740993", "9223372036854775807"] {
            server.command(&["DEL", KEY]);
            let store = with_open_window(&server, &plan).await;
            server.command(&["SET", KEY, garbage]);
            for _ in 0..2 {
                assert_eq!(
                    try_take(&store, "a", &plan).await,
                    Err(StoreError::Corrupt),
                    "{garbage}"
                );
                // The follow-up round trip subtracts what was added.
                assert!(try_take(&store, "other", &plan).await.is_ok());
                assert_eq!(server.command(&["GET", KEY]).text(), garbage);
            }
        }
        server.command(&["DEL", KEY]);
        let store = with_open_window(&server, &plan).await;
        server.command(&["DEL", KEY]);
        server.command(&["RPUSH", KEY, "x"]);
        assert_eq!(try_take(&store, "a", &plan).await, Err(StoreError::WrongType));
    });
}

#[test]
fn a_full_count_stays_full_and_in_its_window() {
    const MOST: i64 = u32::MAX as i64;
    let server = Server::start();
    runtime().block_on(async {
        let plan = plan(u32::MAX, Unit::Day);
        let store = with_open_window(&server, &plan).await;
        let empty = number(&server) - 3;
        set(&server, empty + MOST - 1);
        let key = Key { domain: "test", entries: &[("key", "a")] };
        let one = Charge { key, plan: &plan, op: Op::Take(1), hold: None, role: Role::Enforced };
        let decision = charge(&store, &[one; 4], false).await;
        let used = decision.iter().map(|decision| (decision.allowed, decision.used_before as i64));
        let most = [(true, MOST - 1), (false, MOST), (false, MOST), (false, MOST)];
        assert_eq!(used.collect::<Vec<_>>(), most);
        let full = async || number(&server) == empty + MOST;
        until("the count to be cut", full).await;
        for _ in 0..3 {
            let decision = try_take(&store, "a", &plan).await.unwrap();
            assert_eq!((decision.allowed, decision.used_before as i64), (false, MOST));
        }
        until("the count to be cut", full).await;
        // As another replica would see it before it is cut.
        for together in [false, true] {
            let key = if together { "weir:{test}|key=a|f86400" } else { KEY };
            server.command(&["SET", key, &(empty + MOST + 70_000).to_string(), "KEEPTTL"]);
            let store = connected(options(single(&server))).await;
            let decision = charge(&store, &[one], together).await.swap_remove(0);
            assert_eq!((decision.allowed, decision.used_before as i64), (false, MOST));
        }
        assert_expires(&server);
    });
}

#[test]
fn replicas_whose_clocks_differ_agree_on_the_newest_window() {
    let server = Server::start();
    let clocks = [0, 0].map(|_| Arc::new(ManualClock::new(DAWN)));
    runtime().block_on(async {
        let day = Unit::Day.seconds() * SECOND;
        let plan = plan(9, Unit::Day);
        let behind = manual(single(&server), &clocks[0]);
        let ahead = manual(single(&server), &clocks[1]);
        behind.answered().await;
        ahead.answered().await;
        for before in 0..4 {
            let store = if before % 2 == 0 { &behind } else { &ahead };
            assert_eq!(used(store, &plan).await, before);
        }
        assert_eq!((plain(&behind), plain(&ahead)), (1, 1));
        let first = number(&server) - 4;
        // One window ahead: both count in that one.
        clocks[1].advance(day);
        assert_eq!(used(&ahead, &plan).await, 0);
        assert_eq!(used(&behind, &plan).await, 1);
        assert_eq!(used(&ahead, &plan).await, 2);
        assert_eq!(number(&server), first + WINDOW + 3);
        assert_eq!((plain(&behind), plain(&ahead)), (2, 2));
        // Far ahead: the count returns to the current window.
        clocks[1].advance(4 * day);
        assert_eq!(used(&ahead, &plan).await, 0);
        assert_eq!(used(&behind, &plan).await, 1);
        assert_eq!(plain(&behind), 3);
        until("it to be moved", async || number(&server) == first + 2).await;
        assert_eq!(used(&behind, &plan).await, 2);
        let left = server.command(&["PTTL", KEY]).int();
        assert!((1..=86_400_001 + 10_000).contains(&left), "{left}");
    });
}

/// Replicas on one clock, while windows start.
#[test]
fn racing_replicas_admit_exactly_n_in_each_window() {
    const N: u32 = 100;
    const WINDOWS: u64 = 30;
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(DAWN));
    let denied = [0; 4].map(|_| AtomicU64::new(0));
    let (over, admitted) = (std::sync::atomic::AtomicBool::new(false), AtomicU64::new(0));
    let (over, admitted, plain_ones) = (&over, &admitted, &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for denied in &denied {
            let (server, clock) = (&server, &clock);
            scope.spawn(move || {
                runtime().block_on(async {
                    let store = manual(single(server), clock);
                    store.answered().await;
                    let plan = plan(N, Unit::Second);
                    while !over.load(Ordering::Relaxed) {
                        let decision = try_take(&store, "a", &plan).await.unwrap();
                        let to = if decision.allowed { admitted } else { denied };
                        to.fetch_add(1, Ordering::Relaxed);
                    }
                    plain_ones.fetch_add(plain(&store), Ordering::Relaxed);
                });
            });
        }
        for _ in 0..WINDOWS {
            let before = denied.each_ref().map(|it| it.load(Ordering::Relaxed));
            servers::wait_for("all to be denied", || {
                let more = |(it, before): (&AtomicU64, &u64)| it.load(Ordering::Relaxed) > *before;
                // The first may have been charged in the window before.
                denied.iter().zip(&before.map(|it| it + 1)).all(more).then_some(())
            });
            clock.advance(SECOND);
        }
        over.store(true, Ordering::Relaxed);
    });
    let most = u64::from(N) * (WINDOWS + 1);
    let admitted = admitted.load(Ordering::Relaxed);
    assert!(admitted >= most - u64::from(N) && admitted <= most, "{admitted}");
    assert!(plain_ones.load(Ordering::Relaxed) > most);
}
