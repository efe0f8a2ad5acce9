//! Writing that fails, and a thread that fails.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn write_errors(store: &Disk) -> u64 {
    store.status.write_errors.load(Ordering::Relaxed)
}

fn snapshots(store: &Disk) -> u64 {
    store.status.snapshots.load(Ordering::Relaxed)
}

#[tokio::test]
async fn writing_is_tried_again_before_the_next_sync() {
    let (home, plan) = (Home::new(), plan(3, Unit::Year));
    fs::create_dir_all(home.path().join("log.7.tmp")).unwrap();
    // It is to be removed at the start, but is no file.
    let store = home.open();
    assert_eq!(write_errors(&store), 1);
    take(&store, "d", "a", &plan, 2).await;
    wait_for("all is written, although a sync is not due", || {
        (snapshots(&store) == 1).then_some(())
    });
    drop(store);
    fs::remove_dir(home.path().join("log.7.tmp")).unwrap();
    assert_eq!(used(&home.open(), "d", "a", &plan).await, 2);
}

#[tokio::test]
async fn a_file_in_the_way_is_not_removed() {
    let (home, plan) = (Home::new(), plan(3, Unit::Year));
    let store = home.try_open(SOON, NEVER).unwrap();
    // Where the next snapshot is to be written.
    let in_the_way = home.path().join("snap.2.tmp");
    fs::write(&in_the_way, "not ours").unwrap();
    fs::remove_file(home.path().join("log.1")).unwrap();
    wait_for("writing has failed", || (write_errors(&store) >= 1).then_some(()));
    take(&store, "d", "a", &plan, 2).await;
    wait_for_sync(&store);
    assert_eq!(*store.status.not_saved_because.lock(), None);
    drop(store);
    assert_eq!(used(&home.open(), "d", "a", &plan).await, 2);
}

/// A clock that panics on the thread of the store.
#[derive(Debug, Default)]
struct FaultyClock(AtomicBool);

impl Clock for FaultyClock {
    fn now(&self) -> Micros {
        let here = std::thread::current().name() == Some("weir-disk");
        assert!(!(here && self.0.load(Ordering::Relaxed)), "this panic is a part of the test");
        DAWN
    }
}

#[tokio::test]
async fn a_thread_that_fails_while_loading_is_reported() {
    let (home, clock) = (Home::new(), Arc::new(FaultyClock(AtomicBool::new(true))));
    let failures = Failures::default();
    let store = DiskStore::open(clock, home.options(SOON), &failures).unwrap();
    let error = timeout(MINUTE, store.load_error()).await.unwrap();
    assert_eq!(error, "the thread that loads counters from disk has failed");
    assert!(!store.is_ready());
    store.finish().await;
}

#[tokio::test]
async fn decisions_go_on_if_the_thread_fails_and_it_is_started_again() {
    let (home, clock) = (Home::new(), Arc::new(FaultyClock::default()));
    let schedule = Schedule { sync: SOON, compact: Duration::ZERO, min_obsolete_bytes: 0 };
    let failures = Failures::default();
    let options = home.options(SOON);
    let store = DiskStore::open_with(clock.clone(), options, schedule, failures.clone()).unwrap();
    store.connect().await;
    wait_for("the thread runs", || (failures.of(THREAD) == Some(0)).then_some(()));
    clock.0.store(true, Ordering::Relaxed);
    let plan = plan(1_000_000_000, Unit::Year);
    let mut hits = 0;
    wait_for("a snapshot was begun", || {
        assert!(take_now(&store, "a", &plan, 1));
        hits += 1;
        (failures.of(THREAD) >= Some(2)).then_some(())
    });
    assert!(store.status.not_saved_because.lock().is_some());
    clock.0.store(false, Ordering::Relaxed);
    wait_for("it saves again", || store.status.not_saved_because.lock().is_none().then_some(()));
    store.finish().await;
    assert!(store.status.has_saved_all.load(Ordering::Acquire));
    drop(store);
    assert_eq!(used(&home.open(), "d", "a", &plan).await, hits);
}
