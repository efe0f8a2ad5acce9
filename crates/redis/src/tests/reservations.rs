//! Hits that are reserved under an id, and settled later.

mod faults;
mod model;

use super::*;
use weir_limit::{
    Algorithm, Calendar, FixedWindow, ReservationOp, ReservationResult, Reserve, SlidingLog,
    SlidingWindow,
};
use weir_store::conformance::try_reset;

const MINUTE: Micros = 60 * SECOND;

fn limit(n: u32, algorithm: Algorithm) -> Limit {
    let window = Limit::fixed_window(n, Unit::Minute, 1).unwrap();
    Limit { algorithm, charge_denied: false, ..window }
}

fn fixed(n: u32) -> Limit {
    limit(n, Algorithm::FixedWindow(FixedWindow { n, period: MINUTE, calendar: None }))
}

/// A month of the calendar and a sliding minute.
fn budget(n: u32) -> Arc<Plan> {
    let calendar = Some(Calendar::new(Unit::Month, "Europe/Vienna").unwrap().into());
    let month = FixedWindow { n, period: 30 * 1_440 * MINUTE, calendar };
    let minute = SlidingWindow { n, period: MINUTE };
    let limits = [Algorithm::FixedWindow(month), Algorithm::SlidingWindow(minute)];
    Arc::new(Plan::new(limits.map(|algorithm| limit(n, algorithm)).into()))
}

fn reserve(least: u32, most: u32) -> Op {
    Op::Reservation(ReservationOp::Reserve {
        reserve: Reserve { least, most, timeout: 3_600 },
        once: None,
    })
}

fn settle(hits: u32) -> Op {
    Op::Reservation(ReservationOp::settle(hits))
}

async fn used(store: &RedisStore, plan: &Arc<Plan>) -> u64 {
    try_take_of(store, plan, 0).await.used_before
}

async fn try_take_of(store: &RedisStore, plan: &Arc<Plan>, hits: u64) -> Decision {
    take(store, "test", "a", plan, hits).await
}

#[test]
fn a_record_is_small_and_lapses() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let id = "6f3c1a52-9a35-4a0e-9c8e-0d5f8f1c7b11";
        for (plan, key) in [
            (Arc::new(Plan::new(vec![fixed(100)])), "weir:{test|key=a}f60"),
            (budget(100), "weir:{test|key=a}f2592000@Europe/Vienna+s60"),
        ] {
            assert!(make(&store, &plan, id, reserve(1, 40)).await.unwrap().allowed);
            let record = format!("{key}:r:{id}");
            assert_eq!(server.command(&["STRLEN", &record]).int(), 23);
            let left = server.command(&["PTTL", &record]).int();
            assert!((3_590_000..=3_601_000).contains(&left), "{left}");
            let bytes = server.command(&["MEMORY", "USAGE", &record]).int();
            println!("{bytes} bytes for a record under a key of {}", record.len());
            assert!(bytes <= 200 + record.len() as i64, "{bytes}");
            assert_eq!(make(&store, &plan, id, settle(7)).await.unwrap().reserved, 40);
            assert_eq!(server.command(&["EXISTS", &record]).int(), 0);
            assert_eq!(used(&store, &plan).await, 7);
        }
        assert_eq!(server.command(&["DBSIZE"]).int(), 2);
    });
}

#[test]
fn a_reset_is_kept_until_what_was_reserved_before_has_lapsed() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let plan = budget(100);
        let key = Key { domain: "test", entries: &[("key", "a")] };
        let kept = "weir:{test|key=a}f2592000@Europe/Vienna+s60:reset";
        assert_eq!(make(&store, &plan, "id", reserve(1, 40)).await.unwrap().granted, 40);
        try_reset(&store, key, &plan).await.unwrap();
        assert_eq!(server.command(&["DBSIZE"]).int(), 2);
        let left = server.command(&["PTTL", kept]).int();
        assert!((86_400_000..=86_411_000).contains(&left), "{left}");
        assert_eq!(try_take_of(&store, &plan, 50).await.used_before, 0);
        assert_eq!(make(&store, &plan, "id", settle(7)).await.unwrap().reserved, 40);
        assert_eq!(used(&store, &plan).await, 50);
        // What cannot be read is no reset.
        for foreign in [["SET", kept, "x"], ["RPUSH", kept, "x"]] {
            assert_eq!(make(&store, &plan, "id", reserve(1, 40)).await.unwrap().granted, 40);
            server.command(&["DEL", kept]);
            server.command(&foreign);
            assert_eq!(make(&store, &plan, "id", settle(0)).await.unwrap().reserved, 40);
            assert_eq!(used(&store, &plan).await, 50);
        }
        // Where nothing can be reserved, nothing is kept.
        server.command(&["FLUSHALL"]);
        let log = Algorithm::SlidingLog(SlidingLog { n: 9, period: MINUTE });
        let plan = Arc::new(Plan::new(vec![limit(9, log)]));
        try_reset(&store, key, &plan).await.unwrap();
        assert_eq!(server.command(&["DBSIZE"]).int(), 0);
    });
}

#[test]
fn a_record_that_cannot_be_read_fails_its_charge_alone() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        for (plan, key) in [
            (Arc::new(Plan::new(vec![fixed(100)])), "weir:{test|key=a}f60"),
            (budget(100), "weir:{test|key=a}f2592000@Europe/Vienna+s60"),
        ] {
            assert_eq!(try_take_of(&store, &plan, 5).await.used_before, 0);
            server.command(&["RPUSH", &format!("{key}:r:list"), "x"]);
            server.command(&["SET", &format!("{key}:r:text"), "no record"]);
            server.command(&["SET", &format!("{key}:r:layout"), &"\u{2}".repeat(23)]);
            for (id, error) in [
                ("list", StoreError::WrongType),
                ("text", StoreError::Corrupt),
                ("layout", StoreError::Corrupt),
            ] {
                for op in [reserve(1, 9), settle(9)] {
                    assert_eq!(make(&store, &plan, id, op).await, Err(error), "{id}");
                }
            }
            assert!(make(&store, &plan, "good", reserve(1, 9)).await.unwrap().allowed);
            assert_eq!(used(&store, &plan).await, 14);
            // What is reserved stays where the counts cannot be read.
            server.command(&["SET", key, "no state"]);
            assert_eq!(make(&store, &plan, "good", settle(1)).await, Err(StoreError::Corrupt));
            server.command(&["DEL", key]);
            assert_eq!(make(&store, &plan, "good", settle(1)).await.unwrap().reserved, 9);
        }
    });
}

#[test]
fn forgotten_scripts_reserve_once() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let plan = budget(100);
        for (i, op) in (1..).zip([reserve(1, 9), reserve(1, 9), settle(2)]) {
            make(&store, &plan, "id", op).await.unwrap();
            assert_eq!(used(&store, &plan).await, [9, 18, 11][i - 1]);
            server.command(&["SCRIPT", "FLUSH"]);
        }
    });
}
