//! The cap on reservations: which one is evicted when it is reached, and whose are not kept.

use super::*;

#[tokio::test]
async fn the_cap_of_reservations_is_never_exceeded() {
    let plan = budget(1_000_000, Unit::Day, 1);
    for max in [0, 1, 2, 7, 100, 5_000] {
        let (store, _) = store(10_000);
        let store = store.with_max_reservations(max);
        let made = max + max / 2 + 10;
        for i in 0..made {
            let key = i.to_string();
            make_of(&store, &plan, &key, "r", reserve(1, 1)).await;
        }
        let stats = store.stats();
        assert!(stats.reservations <= max.max(1), "{stats:?}");
        assert!(stats.reservations * 100 >= max * 90, "{stats:?} of {max}");
        assert_eq!(stats.reservations + stats.reservations_evicted as usize, made);
        // What was evicted stays charged.
        for i in 0..made {
            assert_eq!(take(&store, "d", &i.to_string(), &plan, 0).await.used_before, 1);
        }
    }
}

#[tokio::test]
async fn a_key_with_a_sixteenth_of_a_full_table_gets_no_further_record() {
    let plan = budget(1_000_000, Unit::Day, 1);
    for max in [64_usize, 8_000] {
        let (store, clock) = store(100_000);
        let store = store.with_max_reservations(max);
        let others = max / 2;
        for i in 0..others {
            make_of(&store, &plan, &i.to_string(), "r", reserve(1, 1)).await;
        }
        // One client reserves, again and again, until all is full and long after.
        for i in 0..3 * max {
            assert!(make(&store, &plan, &i.to_string(), reserve(1, 1)).await.allowed);
        }
        let stats = store.stats();
        assert_eq!(stats.reservations_evicted, 0, "{stats:?}");
        assert!(stats.reservations_unrecorded as usize >= 2 * max, "{stats:?}");
        assert_eq!(stats.reservations + stats.reservations_unrecorded as usize, others + 3 * max);
        assert_eq!(used(&store, &plan).await, 3 * max as u64);
        // Its hits settle as unknown, charged.
        let last = (3 * max - 1).to_string();
        let settled = make(&store, &plan, &last, ReservationOp::settle(2)).await;
        assert_eq!((settled.reservation, settled.granted), (ReservationResult::Unknown, 2));
        // What it has is settled, and another key has its place.
        let first = make(&store, &plan, "0", ReservationOp::settle(0)).await;
        assert_eq!(first.reservation, ReservationResult::Settled);
        for i in 0..max / 16 {
            let key = format!("new {i}");
            make_of(&store, &plan, &key, "r", reserve(1, 1)).await;
            let settled = make_of(&store, &plan, &key, "r", ReservationOp::settle(0)).await;
            assert_eq!(settled.reservation, ReservationResult::Settled);
        }
        // Once what it has reserved has lapsed, it is as any other.
        clock.advance((u64::from(TIMEOUT) + 1) * SECOND);
        make(&store, &plan, "late", reserve(1, 1)).await;
        let settled = make(&store, &plan, "late", ReservationOp::settle(0)).await;
        assert_eq!(settled.reservation, ReservationResult::Settled);
    }
}

#[tokio::test]
async fn by_default_there_is_a_reservation_for_eight_keys() {
    let ((store, _), plan) = (store(80), budget(1_000, Unit::Day, 1));
    for i in 0..20 {
        make_of(&store, &plan, &i.to_string(), "r", reserve(1, 1)).await;
    }
    assert_eq!((store.stats().reservations, store.stats().reservations_evicted), (10, 10));
}

#[tokio::test]
async fn what_lapses_first_is_evicted_and_what_has_lapsed_before_it() {
    let plan = budget(1_000, Unit::Day, 1);
    let (store, clock) = store(1_000);
    let store = store.with_max_reservations(8);
    let within = |timeout| ReservationOp::Reserve {
        reserve: Reserve { least: 1, most: 1, timeout },
        once: None,
    };
    for i in 0..8 {
        make_of(&store, &plan, &i.to_string(), "r", within(100 - i)).await;
    }
    make_of(&store, &plan, "new", "r", within(50)).await;
    assert_eq!(store.stats().reservations_evicted, 1);
    clock.advance(95 * SECOND);
    // "new" and 5 and 6 have lapsed, and 7 is gone.
    for key in ["a", "b", "c"] {
        make_of(&store, &plan, key, "r", within(50)).await;
    }
    assert_eq!(store.stats().reservations_evicted, 1);
    let mut open = Vec::new();
    for key in ["0", "1", "2", "3", "4", "5", "6", "7", "new", "a", "b", "c"] {
        let settled = make_of(&store, &plan, key, "r", ReservationOp::Cancel(0)).await;
        open.extend((settled.reservation == ReservationResult::Settled).then_some(key));
    }
    assert_eq!(open, ["0", "1", "2", "3", "4", "a", "b", "c"]);
}
