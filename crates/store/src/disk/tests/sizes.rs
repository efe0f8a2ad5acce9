//! What a directory takes, and what is too large for a frame or a list.

use std::fs;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use weir_limit::{Algorithm, Limit, SlidingLog};

#[tokio::test]
async fn an_idle_directory_shrinks_when_its_keys_expire() {
    // The test of 50 million keys is in tests/e2e.
    const KEYS: usize = 20_000;
    let (home, minute) = (Home { max_keys: 100_000, ..Home::new() }, plan(9, Unit::Minute));
    let store = home.try_open(SOON, SOON).unwrap();
    for i in 0..KEYS {
        take(&store, "d", &i.to_string(), &minute, 1).await;
    }
    wait_for("all is written", || (home.bytes() > KEYS as u64 * 31).then_some(()));
    home.clock.advance(60 * SECOND);
    store.memory.sweep(store.memory.shards());
    wait_for("the directory has shrunk", || (home.bytes() < 1_000).then_some(()));
}

#[tokio::test]
async fn a_log_that_grows_is_replaced_by_a_snapshot() {
    let (home, hour) = (Home::new(), plan(u32::MAX, Unit::Hour));
    let store = home.try_open(SOON, SOON).unwrap();
    wait_for("there was a snapshot", || {
        for i in 0..1_000 {
            assert!(take_now(&store, &i.to_string(), &hour, 1));
        }
        (store.status.snapshots.load(Relaxed) > 1).then_some(())
    });
    let counted = used(&store, "d", "1", &hour).await;
    store.finish().await;
    drop(store);
    assert_eq!(used(&home.open(), "d", "1", &hour).await, counted);
}

#[tokio::test]
async fn a_state_longer_than_a_frame_survives() {
    const HITS: u32 = 300_000;
    let (home, log) = (Home::new(), hit_log(HITS));
    let store = home.open();
    for _ in 0..3_000 {
        assert!(take(&store, "d", "a", &log, 100).await.allowed);
        home.clock.advance(10 * SECOND);
    }
    take(&store, "d", "b", &log, 1).await;
    store.finish().await;
    drop(store);
    assert!(home.bytes() > 300_000, "{}", home.bytes());
    let store = home.open();
    assert!(!take(&store, "d", "a", &log, 1).await.allowed);
    assert_eq!(used(&store, "d", "a", &log).await, u64::from(HITS));
    assert_eq!(used(&store, "d", "b", &log).await, 1);
}

/// A plan of `n` hits a year, of which each has a stamp.
fn hit_log(n: u32) -> Arc<Plan> {
    let limit = Limit::fixed_window(n, Unit::Year, 1).unwrap();
    let algorithm = Algorithm::SlidingLog(SlidingLog { n, period: 31_536_000 * SECOND });
    Arc::new(Plan::new(vec![Limit { charge_denied: false, algorithm, ..limit }]))
}

#[tokio::test]
async fn a_long_log_is_saved_while_it_is_charged() {
    let (home, log) = (Home::new(), hit_log(2_000_000));
    let store = home.try_open(SOON, NEVER).unwrap();
    let (mut hits, mut counted) = (0, None);
    let saved = wait_for("the log was saved many times", || {
        for _ in 0..20 {
            home.clock.advance(1_000);
            assert!(hits > 1_900_000 || take_now(&store, "a", &log, 50));
            hits += if hits > 1_900_000 { 0 } else { 50 };
        }
        let written = store.status.written_records.load(Relaxed);
        if written <= 20 || hits <= 100_000 {
            return None;
        }
        // What is saved meanwhile, as after a crash.
        let (since, saved) = *counted.get_or_insert((Instant::now(), hits));
        (store.status.sync_age() < since.elapsed()).then_some(saved)
    });
    let crashed = Home { clock: home.clock.clone(), ..Home::new() };
    fs::create_dir(crashed.path()).unwrap();
    for file in fs::read_dir(home.path()).unwrap() {
        let file = file.unwrap();
        // An unfinished snapshot may be removed meanwhile.
        let _ = fs::copy(file.path(), crashed.path().join(file.file_name()));
    }
    let found = used(&crashed.open(), "d", "a", &log).await;
    assert!((saved..=hits).contains(&found), "{found} of {saved} to {hits}");
    store.finish().await;
    drop(store);
    assert_eq!(used(&home.open(), "d", "a", &log).await, hits);
}

#[tokio::test]
async fn an_idle_directory_of_large_states_is_not_written_again() {
    let (home, log) = (Home::new(), hit_log(1_000));
    let store = home.try_open(SOON, Duration::ZERO).unwrap();
    for i in 0..100 {
        take(&store, "d", &i.to_string(), &log, 200).await;
    }
    wait_for_sync(&store);
    // Whether there are two snapshots or one depends on when the first was begun.
    wait_for("no file changes", || {
        let (files, snapshots) = (home.files(), store.status.snapshots.load(Relaxed));
        for _ in 0..10 {
            wait_for_sync(&store);
        }
        let is_idle = (home.files(), store.status.snapshots.load(Relaxed)) == (files, snapshots);
        (is_idle && snapshots > 0).then_some(())
    });
    store.finish().await;
    drop(store);
    let store = home.try_open(SOON, Duration::ZERO).unwrap();
    for _ in 0..10 {
        wait_for_sync(&store);
    }
    assert_eq!(store.status.snapshots.load(Relaxed), 0);
}

#[tokio::test]
async fn more_changes_than_are_listed_are_saved_as_a_snapshot() {
    let (home, hour) = (Home { max_keys: 1_000, ..Home::new() }, plan(9, Unit::Hour));
    let store = home.open();
    for i in 0..10_000 {
        take(&store, "d", &i.to_string(), &hour, 1).await;
    }
    store.finish().await;
    drop(store);
    let files = home.files();
    assert!(files.iter().any(|name| name.starts_with("snap")), "{files:?}");
    let store = home.open();
    assert_eq!(store.memory.stats().keys, 1_000);
    assert_eq!(used(&store, "d", "9999", &hour).await, 1);
}
