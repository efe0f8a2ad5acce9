//! Counting together with the reference, with the commands that it sends.

use std::num::NonZeroU32;

use super::*;
use weir_limit::{Undo, UpTo};

const NOW: u64 = 1_700_006_412;

fn reference(server: &Server, clock: &Arc<ManualClock>) -> RedisStore {
    let (layout, wall) = (Layout::Reference, clock.clone());
    RedisStore::new(Options { layout, wall, prefix: "pre_".into(), ..options(single(server)) })
}

#[test]
fn weir_and_the_reference_count_under_one_key() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(NOW * SECOND));
    runtime().block_on(async {
        let store = reference(&server, &clock);
        store.answered().await;
        let plan = plan(5, Unit::Minute);
        let window = NOW - NOW % 60;
        let key = format!("pre_test_key_alice_{window}");
        assert_eq!(try_take(&store, "alice", &plan).await.unwrap().used_before, 0);
        assert_eq!(server.command(&["GET", &key]).text(), "1");
        let left = server.command(&["TTL", &key]).int();
        assert!((59..=60).contains(&left), "{left}");
        // What the reference sends for two hits.
        assert_eq!(server.command(&["INCRBY", &key, "2"]).int(), 3);
        server.command(&["EXPIRE", &key, "60"]);
        let decision = try_take(&store, "alice", &plan).await.unwrap();
        assert_eq!((decision.used_before, decision.remaining), (3, 1));
        // The reference finds what weir counted.
        assert_eq!(server.command(&["INCRBY", &key, "2"]).int(), 6);
        let decision = try_take(&store, "alice", &plan).await.unwrap();
        assert!(!decision.allowed);
        assert_eq!(decision.retry_after, Some((60 - NOW % 60) * SECOND));
        assert_eq!(server.command(&["GET", &key]).text(), "7");
        clock.advance(60 * SECOND);
        assert_eq!(try_take(&store, "alice", &plan).await.unwrap().used_before, 0);
        assert_eq!(
            server.command(&["GET", &format!("pre_test_key_alice_{}", window + 60)]).text(),
            "1"
        );
    });
}

#[test]
fn batches_and_refunds_use_the_references_keys() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(NOW * SECOND));
    runtime().block_on(async {
        let store = reference(&server, &clock);
        store.answered().await;
        let (wide, narrow) = (plan(10, Unit::Minute), plan(1, Unit::Minute));
        let of = |entries, plan, op| Charge {
            key: Key { domain: "test", entries },
            plan,
            op,
            hold: None,
            role: Role::Enforced,
        };
        let (a, b) = ([("key", "a")], [("key", "b")]);
        let both = [of(&a, &wide, Op::Take(2)), of(&b, &narrow, Op::Take(1))];
        let window = NOW - NOW % 60;
        let count = |value| server.command(&["GET", &format!("pre_test_key_{value}_{window}")]);
        assert!(charge(&store, &both, true).await.iter().all(|decision| decision.allowed));
        assert!(!charge(&store, &both, true).await[1].allowed);
        assert_eq!([count("a").text(), count("b").text()], ["2", "1"]);
        charge(&store, &[of(&a, &wide, Op::Refund(1))], false).await;
        assert_eq!(count("a").text(), "1");
        let left = server.command(&["PTTL", &format!("pre_test_key_a_{window}")]).int();
        assert!(left > 0);
    });
}

#[test]
fn what_is_granted_added_and_undone_is_under_the_references_key() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(NOW * SECOND));
    runtime().block_on(async {
        let store = reference(&server, &clock);
        store.answered().await;
        let plan = plan(10, Unit::Minute);
        let one = async |op| {
            let key = Key { domain: "test", entries: &[("key", "a")] };
            let one = Charge { key, plan: &plan, op, hold: None, role: Role::Enforced };
            charge(&store, &[one], false).await.swap_remove(0)
        };
        let window = NOW - NOW % 60;
        let key = |window| format!("pre_test_key_a_{window}");
        let up_to = Op::UpTo(UpTo { least: 1, most: 6, share: NonZeroU32::MIN });
        for (op, granted, count) in
            [(up_to, 6, "6"), (up_to, 4, "10"), (Op::Add { hits: 3, limits: 1 }, 0, "13")]
        {
            assert_eq!(one(op).await.granted, granted);
            assert_eq!(server.command(&["GET", &key(window)]).text(), count);
        }
        let left = server.command(&["PTTL", &key(window)]).int();
        assert!((1..=60_001).contains(&left), "{left}");
        // In the next window, what was taken in this one comes back to this one.
        clock.advance(60 * SECOND);
        assert_eq!(one(up_to).await.granted, 6);
        let undo = Undo { hits: 5, taken: NOW * SECOND, limits: 1, replaced: None };
        one(Op::Undo(undo)).await;
        let counts = [window, window + 60].map(|it| server.command(&["GET", &key(it)]).text());
        assert_eq!(counts, ["8", "6"]);
    });
}
