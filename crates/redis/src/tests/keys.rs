//! The values of keys: expiry, size, and values that weir did not write.

use std::num::NonZeroU32;

use super::*;
use weir_limit::{Algorithm, Concurrency, Undo, UpTo};

#[test]
fn foreign_values_fail_only_their_own_key() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let minute = plan(5, Unit::Minute);
        let log = Limit {
            charge_denied: false,
            algorithm: weir_limit::Algorithm::SlidingLog(weir_limit::SlidingLog {
                n: 5,
                period: 60 * SECOND,
            }),
            ..Limit::fixed_window(5, Unit::Minute, 1).unwrap()
        };
        let two = |limit: &Limit| Arc::new(Plan::new(vec![limit.clone(), limit.clone()]));
        let several = two(&Limit::fixed_window(5, Unit::Minute, 1).unwrap());
        let logs = two(&log);
        for (plan, shape) in [(&minute, "f60"), (&several, "f60+f60"), (&logs, "l60+l60")] {
            let key = |value: &str| format!("weir:{{test|key={value}}}{shape}");
            server.command(&["RPUSH", &key("list"), "x"]);
            server.command(&["SET", &key("text"), "no number"]);
            server.command(&["SET", &key("negative"), "-5"]);
            server.command(&["SET", &key("huge"), "9223372036854775807"]);
            // Another layout version.
            server.command(&["SET", &key("layout"), &"\u{2}".repeat(23)]);
            let failed = |value| try_take(&store, value, plan);
            assert_eq!(failed("list").await, Err(StoreError::WrongType), "{shape}");
            for garbage in ["text", "negative", "huge", "layout"] {
                let before = server.command(&["GET", &key(garbage)]);
                assert_eq!(failed(garbage).await, Err(StoreError::Corrupt), "{garbage} {shape}");
                assert_eq!(server.command(&["GET", &key(garbage)]), before);
            }
            assert!(failed("good").await.is_ok_and(|decision| decision.allowed));
        }
    });
}

#[test]
fn keys_expire_with_their_state() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let rules = |algorithm| {
            let limit = Limit::fixed_window(10, Unit::Minute, 1).unwrap();
            Arc::new(Plan::new(vec![Limit { algorithm, charge_denied: false, ..limit }]))
        };
        use weir_limit::*;
        let s = SECOND;
        let hold_id = Some("key".into());
        for (algorithm, key, least, most) in [
            (
                Algorithm::SlidingWindow(SlidingWindow { n: 10, period: 60 * s }),
                "s60",
                60_000,
                120_001,
            ),
            (Algorithm::SlidingLog(SlidingLog { n: 10, period: 60 * s }), "l60", 59_000, 60_001),
            (
                Algorithm::BucketedWindow(BucketedWindow { n: 10, period: 60 * s, buckets: 6 }),
                "b60/6",
                59_000,
                70_001,
            ),
            (
                Algorithm::TokenBucket(TokenBucket {
                    capacity: 5,
                    amount: 1,
                    interval: 10 * s,
                    strict: false,
                    max_debt: 0,
                }),
                "t10000000us",
                9_000,
                10_001,
            ),
            (Algorithm::Gcra(Gcra::new(10, 60 * s, 10, 0).unwrap()), "g60/1", 5_000, 7_001),
            (
                Algorithm::Concurrency(Concurrency { n: 10, timeout: 30 * s, hold_id: None }),
                "c",
                29_000,
                30_001,
            ),
            (
                Algorithm::Concurrency(Concurrency { n: 10, timeout: 30 * s, hold_id }),
                "h:holds",
                29_000,
                30_001,
            ),
        ] {
            let plan = rules(algorithm);
            assert!(try_take(&store, "a", &plan).await.is_ok_and(|decision| decision.allowed));
            let key = format!("weir:{{test|key=a}}{key}");
            let left = server.command(&["PTTL", &key]).int();
            assert!((least..=most).contains(&left), "{key} for {left} ms");
        }
        let minute = plan(10, Unit::Minute);
        let decision = try_take(&store, "a", &minute).await.unwrap();
        let left = server.command(&["PTTL", "weir:{test|key=a}f60"]).int();
        assert!(left <= (decision.reset_after / 1_000) as i64 + 1, "{left}");
        assert!(left > 0);
        let all = server.command(&["DBSIZE"]).int();
        assert_eq!(all, 8);
    });
}

#[test]
fn looks_and_refunds_create_no_keys() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let several = Arc::new(Plan::new(vec![
            Limit::fixed_window(5, Unit::Minute, 1).unwrap(),
            Limit::fixed_window(9, Unit::Hour, 1).unwrap(),
        ]));
        for plan in [&plan(5, Unit::Minute), &several] {
            take(&store, "test", "look", plan, 0).await;
            let entries = [("key", "back")];
            let key = Key { domain: "test", entries: &entries };
            let back = Charge { key, plan, op: Op::Refund(3), hold: None, role: Role::Enforced };
            charge(&store, &[back, back], false).await;
            charge(&store, &[back, back], true).await;
            let undo = Undo { hits: 3, taken: DAWN, limits: 3 };
            let none = UpTo { least: 0, most: 0, share: NonZeroU32::MIN };
            let nothing = Op::Add { hits: 0, limits: 3 };
            for op in [Op::Undo(undo), Op::UpTo(none), nothing] {
                charge(&store, &[Charge { op, ..back }], false).await;
                charge(&store, &[Charge { op, ..back }], true).await;
            }
        }
        assert_eq!(server.command(&["DBSIZE"]).int(), 0);
    });
}

/// Charges of one key that wait for the same round trip are one entry of one call.
#[test]
fn waiting_charges_of_a_key_share_an_entry() {
    let server = Server::start();
    runtime().block_on(async {
        let store = Arc::new(RedisStore::new(options(single(&server))));
        store.answered().await;
        let plan = plan(40, Unit::Day);
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (store, plan) = (store.clone(), plan.clone());
            asking.spawn(async move { try_take(&store, "hot", &plan).await.unwrap() });
        }
        let decision: Vec<Decision> = asking.join_all().await;
        assert_eq!(decision.iter().filter(|decision| decision.allowed).count(), 40);
        let mut before: Vec<u64> = decision.iter().map(|decision| decision.used_before).collect();
        before.sort_unstable();
        assert_eq!(before, (0..64).collect::<Vec<_>>());
        let counts = store.counts();
        assert_eq!(counts.charges.load(Ordering::Relaxed), 64);
        assert!(counts.keys.load(Ordering::Relaxed) <= 2, "{counts:?}");
    });
}

#[test]
fn forgotten_scripts_are_sent_again() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let plan = plan(5, Unit::Day);
        for used in 0..3 {
            let decision = try_take(&store, "a", &plan).await.unwrap();
            assert_eq!(decision.used_before, used);
            server.command(&["SCRIPT", "FLUSH"]);
        }
    });
}

#[test]
fn out_of_memory_is_an_error_and_not_a_verdict() {
    let server = Server::configured(&["maxmemory 1", "maxmemory-policy noeviction"]);
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let several = Arc::new(Plan::new(vec![
            Limit::fixed_window(5, Unit::Minute, 1).unwrap(),
            Limit::fixed_window(9, Unit::Hour, 1).unwrap(),
        ]));
        assert_eq!(try_take(&store, "a", &plan(5, Unit::Day)).await, Err(StoreError::OutOfMemory));
        assert_eq!(try_take(&store, "a", &several).await, Err(StoreError::OutOfMemory));
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(try_take(&store, "a", &several).await.is_ok_and(|decision| decision.allowed));
    });
}

/// Larger numbers would not be exact in a script, and would not be states.
#[test]
fn counts_saturate_at_the_largest_exact_number() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(DAWN));
    runtime().block_on(async {
        let store = manual(single(&server), &clock);
        store.answered().await;
        let held = Concurrency { n: 3, timeout: 60 * SECOND, hold_id: None };
        let limit = Limit::fixed_window(3, Unit::Day, 1).unwrap();
        let algorithm = Algorithm::Concurrency(held);
        let held = Arc::new(Plan::new(vec![Limit { algorithm, unit: None, ..limit }]));
        let script = "redis.call('SET', KEYS[1], struct.pack('<BI7I7', 1, 2^52 - 1, ARGV[1]))";
        server.command(&["EVAL", script, "1", "weir:{test|key=b}c", &DAWN.to_string()]);
        for used in [(1 << 52) - 1, 1 << 52, 1 << 52] {
            let decision = take(&store, "test", "b", &held, u32::MAX.into()).await;
            assert_eq!((decision.allowed, decision.used_before), (false, used));
        }
    });
}
