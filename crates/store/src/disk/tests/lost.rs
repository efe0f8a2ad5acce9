//! Files that another program removes or replaces.

use std::sync::atomic::Ordering;

use super::*;

fn files_lost(store: &Disk) -> u64 {
    store.status.files_lost.load(Ordering::Relaxed)
}

fn damaged_files(store: &Disk) -> u64 {
    store.status.recovery().0.damage.files
}

/// Opens a store that writes all the time, and snapshots only if files are lost.
fn syncing(home: &Home, options: DiskOptions) -> Disk {
    let schedule = Schedule { sync: SOON, compact: NEVER, min_obsolete_bytes: 1 << 20 };
    let store = wait_for("the directory is unlocked", || {
        match open_with(home.clock.clone(), options.clone(), schedule) {
            Err(OpenError::InUse(_)) => None,
            opened => Some(opened.unwrap()),
        }
    });
    wait_for("the store is loaded", || store.is_ready().then_some(()));
    store
}

/// Removes a directory at once: file by file, the writer could put another one into it meanwhile. `other` is a path
/// beside it.
fn remove(path: &Path, other: &Path) {
    fs::rename(path, other).unwrap();
    fs::remove_dir_all(other).unwrap();
}

/// Ways to lose files, given the directory and another path beside it.
type Lose = fn(&Path, &Path);

const WAYS: [(&str, Lose); 10] = [
    ("the directory is removed", remove),
    ("the directory is moved", |path, other| fs::rename(path, other).unwrap()),
    ("the directory is replaced by an empty one", |path, other| {
        fs::rename(path, other).unwrap();
        fs::create_dir(path).unwrap();
    }),
    ("the directory is replaced by a copy", |path, other| {
        fs::rename(path, other).unwrap();
        fs::create_dir(path).unwrap();
        for entry in fs::read_dir(other).unwrap() {
            let name = entry.unwrap().file_name();
            fs::copy(other.join(&name), path.join(&name)).unwrap();
        }
    }),
    ("the log is removed", |path, _| fs::remove_file(path.join("log.2")).unwrap()),
    ("an older log is removed", |path, _| fs::remove_file(path.join("log.1")).unwrap()),
    ("the log is cut", |path, _| {
        fs::OpenOptions::new().write(true).open(path.join("log.2")).unwrap().set_len(7).unwrap();
    }),
    ("an older log is cut", |path, _| {
        fs::OpenOptions::new().write(true).open(path.join("log.1")).unwrap().set_len(7).unwrap();
    }),
    ("meta is removed", |path, _| fs::remove_file(path.join("meta")).unwrap()),
    ("the lock is replaced", |path, _| {
        fs::remove_file(path.join("lock")).unwrap();
        fs::write(path.join("lock"), "").unwrap();
    }),
];

#[tokio::test]
async fn everything_is_saved_again_where_the_next_start_looks() {
    for (way, lose) in WAYS {
        let (home, plan) = (Home::new(), plan(9, Unit::Year));
        let store = home.open();
        take(&store, "d", "a", &plan, 1).await;
        store.finish().await;
        drop(store);
        let store = syncing(&home, home.options(SOON));
        take(&store, "d", "a", &plan, 2).await;
        wait_for_sync(&store);
        assert_eq!(home.files(), ["log.1", "log.2"]);
        assert_eq!(files_lost(&store), 0);
        lose(&home.path(), &home.directory.path().join("other"));
        wait_for(way, || (files_lost(&store) > 0).then_some(()));
        take(&store, "d", "a", &plan, 4).await;
        wait_for_sync(&store);
        assert_eq!(*store.status.not_saved_because.lock(), None, "{way}");
        // Killed: nothing is saved at the end.
        drop(store);
        let store = home.open();
        assert_eq!(used(&store, "d", "a", &plan).await, 7, "{way}");
        assert_eq!(damaged_files(&store), 0, "{way}");
    }
}

#[tokio::test]
async fn a_snapshot_that_is_removed_is_noticed() {
    let (home, plan) = (Home::new(), plan(9, Unit::Year));
    let store = syncing(&home, home.options(SOON));
    take(&store, "d", "a", &plan, 2).await;
    wait_for_sync(&store);
    let remove = |name: &str| fs::remove_file(home.path().join(name)).unwrap();
    remove("log.1");
    wait_for("there is a snapshot", || home.files().contains(&"snap.2".to_owned()).then_some(()));
    wait_for_sync(&store);
    remove("snap.2");
    wait_for("it is noticed", || (files_lost(&store) == 2).then_some(()));
    wait_for_sync(&store);
    drop(store);
    assert_eq!(used(&home.open(), "d", "a", &plan).await, 2);
}

#[tokio::test]
async fn what_is_removed_before_the_end_is_saved_at_the_end() {
    let (home, plan) = (Home::new(), plan(9, Unit::Year));
    let store = home.open();
    take(&store, "d", "a", &plan, 2).await;
    remove(&home.path(), &home.directory.path().join("other"));
    store.finish().await;
    assert!(store.status.has_saved_all.load(Ordering::Acquire));
    drop(store);
    let store = home.open();
    assert_eq!((used(&store, "d", "a", &plan).await, damaged_files(&store)), (2, 0));
}

/// Gives two paths each other's content at once.
fn exchange(one: &Path, other: &Path) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_tried_again() {
    let (home, plan) = (Home::new(), plan(9, Unit::Year));
    let store = syncing(&home, home.options(SOON));
    take(&store, "d", "a", &plan, 2).await;
    wait_for_sync(&store);
    // What is there now is no directory. At once, since the store makes a directory that is missing.
    let other = home.directory.path().join("other");
    fs::write(&other, "not ours").unwrap();
    exchange(&home.path(), &other);
    wait_for("it fails", || (store.status.write_errors.load(Ordering::Relaxed) > 0).then_some(()));
    assert!(store.status.not_saved_because.lock().is_some());
    assert_eq!(fs::read(home.path()).unwrap(), b"not ours");
    fs::remove_file(home.path()).unwrap();
    wait_for("it saves again", || store.status.not_saved_because.lock().is_none().then_some(()));
    drop(store);
    assert_eq!(used(&home.open(), "d", "a", &plan).await, 2);
}

#[tokio::test]
async fn a_directory_that_another_process_uses_is_left_to_it() {
    let (home, plan) = (Home::new(), plan(9, Unit::Year));
    let other = home.directory.path().join("other");
    let first = syncing(&home, home.options(SOON));
    let second = syncing(&home, DiskOptions { path: other.clone(), ..home.options(SOON) });
    exchange(&home.path(), &other);
    for (store, hits) in [(&first, 1), (&second, 2)] {
        take(store, "d", "a", &plan, hits).await;
        wait_for("it finds the other", || {
            let why = store.status.not_saved_because.lock().clone()?;
            why.contains("which another process uses").then_some(())
        });
    }
    exchange(&home.path(), &other);
    for store in [&first, &second] {
        wait_for("it saves again", || {
            store.status.not_saved_because.lock().is_none().then_some(())
        });
    }
    drop((first, second));
    assert_eq!(used(&home.open(), "d", "a", &plan).await, 1);
    let second = syncing(&home, DiskOptions { path: other, ..home.options(SOON) });
    assert_eq!(used(&second, "d", "a", &plan).await, 2);
}

#[tokio::test]
async fn a_start_without_logs_reports_those_that_there_were() {
    let (home, plan) = (Home::new(), plan(9, Unit::Year));
    // The first start is none.
    let store = home.open();
    assert_eq!(damaged_files(&store), 0);
    take(&store, "d", "a", &plan, 2).await;
    store.finish().await;
    drop(store);
    for name in ["log.1", "closed"] {
        fs::remove_file(home.path().join(name)).unwrap();
    }
    let store = home.open();
    assert_eq!(damaged_files(&store), 1);
    assert_eq!(used(&store, "d", "a", &plan).await, 0);
    // Nor is one after a crash.
    drop(store);
    assert_eq!(damaged_files(&home.open()), 0);
}
