//! The cap on keys, and who goes when it is reached.

use super::*;

#[tokio::test]
async fn the_cap_is_never_passed() {
    let plan = plan(3, Unit::Hour);
    for max_keys in [0, 1, 2, 7, 100, 5_000, 20_000] {
        for (store, _) in both_kinds(max_keys) {
            for i in 0..max_keys + max_keys / 2 + 10 {
                assert!(take(&store, "d", &i.to_string(), &plan, 1).await.allowed);
                if i % 97 == 0 {
                    assert!(store.stats().keys <= max_keys.max(1));
                }
            }
            let stats = store.stats();
            assert!(stats.keys <= max_keys.max(1), "{stats:?}");
            assert!(stats.keys * 100 >= max_keys * 95, "{stats:?} of {max_keys}");
        }
    }
}

#[tokio::test]
async fn a_flood_of_fresh_keys_does_not_wash_away_who_is_blocked() {
    const CAP: usize = 20_000;
    let plan = plan(3, Unit::Hour);
    for (store, _) in both_kinds(CAP) {
        for i in 0..CAP {
            let blocked = i % 10 == 0;
            let hits = if blocked { 4 } else { 1 };
            assert_eq!(take(&store, "first", &i.to_string(), &plan, hits).await.allowed, !blocked);
        }
        for i in 0..10 * CAP {
            assert!(take(&store, "flood", &i.to_string(), &plan, 1).await.allowed);
            if i % 1_000 == 0 {
                assert!(store.stats().keys <= CAP);
            }
        }
        let mut still = 0;
        for i in (0..CAP).step_by(10) {
            still += usize::from(!take(&store, "first", &i.to_string(), &plan, 0).await.allowed);
        }
        let stats = store.stats();
        assert!(still * 1_000 >= CAP / 10 * 999, "{still} of {} are still blocked", CAP / 10);
        assert!(stats.evicted.full <= 2, "{stats:?}");
        assert_eq!(stats.evicted.expired, 0);
    }
}

#[tokio::test]
async fn what_has_expired_goes_first() {
    let (minute, hour) = (plan(1, Unit::Minute), plan(3, Unit::Hour));
    for (store, clock) in both_kinds(8) {
        for i in 0..4 {
            take(&store, "minute", &i.to_string(), &minute, 1).await;
            take(&store, "hour", &i.to_string(), &hour, 1).await;
        }
        clock.advance(60 * SECOND);
        for i in 4..8 {
            take(&store, "hour", &i.to_string(), &hour, 1).await;
        }
        assert_eq!(store.stats().evicted, Evicted { expired: 4, live: 0, full: 0 });
        for i in 0..8 {
            assert_eq!(take(&store, "hour", &i.to_string(), &hour, 0).await.used_before, 1);
        }
    }
}

#[tokio::test]
async fn where_all_are_full_the_one_free_soonest_goes() {
    let (minute, hour) = (plan(1, Unit::Minute), plan(1, Unit::Hour));
    for (store, _) in both_kinds(8) {
        for i in 0..7 {
            take(&store, "hour", &i.to_string(), &hour, 2).await;
        }
        take(&store, "minute", "a", &minute, 2).await;
        take(&store, "hour", "7", &hour, 2).await;
        assert_eq!(store.stats().evicted, Evicted { expired: 0, live: 0, full: 1 });
        assert_eq!(take(&store, "minute", "a", &minute, 0).await.used_before, 0);
        for i in 0..8 {
            assert!(!take(&store, "hour", &i.to_string(), &hour, 0).await.allowed);
        }
    }
}

#[tokio::test]
async fn boxed_and_packed_keys_share_the_cap_in_proportion() {
    const CAP: usize = 2_000;
    let plan = plan(3, Unit::Hour);
    let (mut store, _) = store(CAP);
    for round in 0..2 {
        for i in 0..CAP * 5 {
            store.boxes = i % 4 == 0;
            take(&store, "d", &format!("{round} {i}"), &plan, 1).await;
        }
    }
    assert_eq!(store.stats().keys, CAP);
    let shard = store.shards[0].0.lock();
    let boxed = shard.boxed_keys();
    assert!((CAP / 5..CAP / 3).contains(&boxed), "{boxed} boxed keys of {CAP}");
}
