//! What a directory keeps, whatever happens to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use parking_lot::Mutex;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::conformance::{self, DAWN, charge, model, plan, take};
use crate::{Answer, Charge, Key, Operations, Role, StateKey, States};
use weir_common::clock::ManualClock;
use weir_limit::{KeyState, Micros, Op, Plan, SECOND, Unit};

mod damage;
mod failures;
mod irregular;
mod lost;
mod reservations;
mod restarts;
mod sizes;

type Disk = DiskStore<Arc<ManualClock>>;

/// A sync and a compaction happen only when a test asks for them.
const NEVER: Duration = Duration::from_secs(3600);

const SOON: Duration = Duration::from_millis(10);

/// A directory and a clock, for one store after the other.
struct Home {
    directory: TempDir,
    clock: Arc<ManualClock>,
    max_keys: usize,
}

impl Home {
    fn new() -> Home {
        let directory = tempfile::tempdir().unwrap();
        Home { directory, clock: Arc::new(ManualClock::new(DAWN)), max_keys: 10_000 }
    }

    fn options(&self, sync: Duration) -> DiskOptions {
        let path = self.directory.path().join("counters");
        DiskOptions { path, sync, max_keys: self.max_keys }
    }

    /// Opens the directory once the store of before has unlocked it.
    fn try_open(&self, sync: Duration, compact: Duration) -> Result<Disk, OpenError> {
        let schedule = Schedule { sync, compact, min_obsolete_bytes: 0 };
        let store = wait_for("the directory is unlocked", || {
            match open_with(self.clock.clone(), self.options(sync), schedule) {
                Err(OpenError::InUse(_)) => None,
                opened => Some(opened),
            }
        })?;
        wait_for("the store is loaded", || store.is_ready().then_some(()));
        Ok(store)
    }

    /// Opens a store that writes only when it is finished.
    fn open(&self) -> Disk {
        self.try_open(NEVER, NEVER).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("counters")
    }

    /// The names of the files with records, without unfinished ones.
    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("snap") || name.starts_with("log"))
            .filter(|name| !name.ends_with(".tmp"))
            .collect();
        names.sort();
        names
    }

    /// The bytes of all files.
    fn bytes(&self) -> u64 {
        let length = |name: &String| fs::metadata(self.path().join(name)).map_or(0, |it| it.len());
        self.files().iter().map(length).sum()
    }
}

fn open_with<C: Clock>(
    clock: C,
    options: DiskOptions,
    schedule: Schedule,
) -> Result<DiskStore<C>, OpenError> {
    DiskStore::open_with(clock, options, schedule, Failures::default())
}

/// A file whose reading lasts until [`File::set_len`](fs::File::set_len) cuts it.
fn endless(path: &Path) -> fs::File {
    let file = fs::File::create(path).unwrap();
    file.set_len(1 << 40).unwrap();
    file
}

fn make_fifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[expect(clippy::disallowed_methods, reason = "waits for another thread")]
fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "waited for a minute until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until all that was charged is on disk.
fn wait_for_sync(store: &Disk) {
    let charged = Instant::now();
    wait_for("the changes are saved", || {
        (store.status.sync_age() < charged.elapsed()).then_some(())
    });
}

/// Charges hits at once. Returns whether the store did so.
fn take_now<C: Clock>(store: &DiskStore<C>, key: &str, plan: &Arc<Plan>, hits: u64) -> bool {
    let entries = [("key", key)];
    let key = Key { domain: "d", entries: &entries };
    let charge = Charge { key, plan, op: Op::Take(hits), hold: None, role: Role::Enforced };
    charge_now(store, charge).is_some()
}

/// Makes a charge at once; none while the store loads.
fn charge_now<C: Clock>(store: &DiskStore<C>, charge: Charge<'_>) -> Option<Answer> {
    let batch = Batch::new(std::slice::from_ref(&charge), Duration::ZERO);
    let mut answers = Answers::new();
    store.is_ready().then(|| {
        let charged = store.charge(&batch, &mut answers).now_or_never();
        charged.expect("nothing to wait for");
        answers.swap_remove(0)
    })
}

async fn used(store: &Disk, domain: &str, key: &str, plan: &Arc<Plan>) -> u64 {
    take(store, domain, key, plan, 0).await.used_before
}

#[tokio::test]
async fn conforms() {
    for max_keys in [1_000, 100_000] {
        let home = Home { max_keys, ..Home::new() };
        // While everything is written, and snapshots are.
        let store = home.try_open(SOON, Duration::ZERO).unwrap();
        conformance::conforms(&store, &home.clock).await;
        conformance::states::conforms(&store, &home.clock).await;
    }
    let home = Home { max_keys: 100_000, ..Home::new() };
    let store = home.try_open(SOON, Duration::ZERO).unwrap();
    conformance::reservations::keeps_many_open(&store, &home.clock).await;
}

#[tokio::test]
#[ignore = "takes half a minute: scripts/test --all runs it"]
async fn reservations_conform_at_length() {
    let home = Home { max_keys: 100_000, ..Home::new() };
    let store = home.try_open(SOON, Duration::ZERO).unwrap();
    conformance::reservations::conforms_at_length(&store, &home.clock).await;
}

#[test]
fn admits_exactly_n_of_racing() {
    let home = Home::new();
    let store = Arc::new(home.try_open(SOON, Duration::ZERO).unwrap());
    let stores = || std::future::ready(store.clone());
    conformance::admits_exactly_n_of_racing(&stores);
    conformance::operations::grants_exactly_n_of_racing(&stores);
    conformance::reservations::reserves_at_most_n_of_racing(&stores);
}

#[tokio::test]
async fn what_was_counted_survives() {
    let (home, hour) = (Home::new(), plan(5, Unit::Hour));
    let store = home.open();
    assert!(take(&store, "d", "a", &hour, 3).await.allowed);
    store.finish().await;
    drop(store);
    let store = home.open();
    assert_eq!(used(&store, "d", "a", &hour).await, 3);
    assert!(!take(&store, "d", "a", &hour, 3).await.allowed);
    assert!(take(&store, "d", "b", &hour, 5).await.allowed);
}

#[tokio::test]
async fn hits_that_were_refunded_do_not_return() {
    let (home, hour) = (Home::new(), plan(5, Unit::Hour));
    let key = Key { domain: "d", entries: &[("key", "a")] };
    let store = home.open();
    take(&store, "d", "a", &hour, 5).await;
    take(&store, "d", "b", &hour, 5).await;
    store.finish().await;
    drop(store);
    let store = home.open();
    let back = Charge { key, plan: &hour, op: Op::Refund(5), hold: None, role: Role::Enforced };
    charge(&store, &[back], false).await;
    let reset = StateKey {
        key: Key { entries: &[("key", "b")], ..key },
        plan: &hour,
        together: false,
        id: None,
    };
    store.reset(reset, Duration::ZERO).await.unwrap();
    store.finish().await;
    drop(store);
    let store = home.open();
    for key in ["a", "b"] {
        assert!(take(&store, "d", key, &hour, 5).await.allowed);
    }
}

#[tokio::test]
async fn charges_wait_until_everything_is_loaded() {
    let (home, hour) = (Home::new(), plan(5, Unit::Hour));
    let store = home.open();
    store.finish().await;
    let log = endless(&home.path().join("log.9"));
    let failures = Failures::default();
    let store = DiskStore::open(home.clock.clone(), home.options(NEVER), &failures).unwrap();
    let entries = [("key", "a")];
    let key = Key { domain: "d", entries: &entries };
    let one = Charge { key, plan: &hour, op: Op::Take(1), hold: None, role: Role::Enforced };
    let batch = |timeout| Batch::new(std::slice::from_ref(&one), timeout);
    assert!(!store.is_ready());
    let mut answers = Answers::new();
    assert_eq!(store.charge(&batch(NEVER), &mut answers).now_or_never(), None);
    store.charge(&batch(Duration::from_millis(1)), &mut answers).await;
    assert_eq!(answers[..], [Err(StoreError::Unavailable)]);
    let loading = async {
        let mut answers = Answers::new();
        store.charge(&batch(NEVER), &mut answers).await;
        answers[0].as_ref().unwrap().allowed
    };
    let load = async { log.set_len(0).unwrap() };
    assert!(tokio::join!(loading, load).0);
    assert!(store.is_ready());
}

#[tokio::test]
async fn a_directory_is_used_by_one_process() {
    let home = Home::new();
    let store = home.open();
    let failures = Failures::default();
    let open = || DiskStore::open(home.clock.clone(), home.options(NEVER), &failures);
    let second = open().unwrap_err();
    let path = home.path();
    assert_eq!(
        second.to_string(),
        format!(
            "store.disk.path is {path:?}, which another process uses: give each process its own \
             directory"
        )
    );
    store.finish().await;
    open().unwrap();
}
