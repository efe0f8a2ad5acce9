//! Counting together with the reference, with the commands that it sends.

use super::*;

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
