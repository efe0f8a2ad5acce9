//! Damaged directories: some keys start over or with older counts, and nothing else happens.

use super::*;
use crate::disk::meta::{Meta, MetaFile};

const KEYS: usize = 300;

/// Fills a directory with a snapshot and two logs, in which each key has a hit more.
async fn filled() -> (Home, Arc<Plan>) {
    let (home, plan) = (Home::new(), plan(3, Unit::Year));
    let mut compact = Duration::ZERO;
    for _ in 0..3 {
        let store = home.try_open(SOON, compact).unwrap();
        for i in 0..KEYS {
            take(&store, "d", &i.to_string(), &plan, 1).await;
        }
        if compact.is_zero() {
            make_obsolete(&home, &store).await;
            wait_for("there is a snapshot", || {
                home.files().iter().any(|name| name.starts_with("snap")).then_some(())
            });
        }
        store.finish().await;
        compact = NEVER;
    }
    (home, plan)
}

/// Makes most of a directory obsolete.
async fn make_obsolete(home: &Home, store: &Disk) {
    let minute = plan(1, Unit::Minute);
    for i in 0..4 * KEYS {
        take(store, "minute", &i.to_string(), &minute, 1).await;
    }
    wait_for_sync(store);
    home.clock.advance(60 * SECOND);
    store.memory.sweep(store.memory.shards());
}

/// Copies all files to another directory.
fn copied(home: &Home) -> Home {
    let copy = Home { clock: home.clock.clone(), ..Home::new() };
    fs::create_dir(copy.path()).unwrap();
    for entry in fs::read_dir(home.path()).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, copy.path().join(from.file_name().unwrap())).unwrap();
    }
    copy
}

/// Opens a directory and returns how often each key was hit.
async fn hits(home: &Home, plan: &Arc<Plan>) -> (Disk, Vec<u64>) {
    let store = home.open();
    let mut hits = Vec::new();
    for i in 0..KEYS {
        hits.push(used(&store, "d", &i.to_string(), plan).await);
    }
    (store, hits)
}

fn is_damaged(store: &Disk) -> bool {
    store.status.recovery().0.damage.is_any()
}

fn torn_logs(store: &Disk) -> u64 {
    store.status.recovery().0.torn_logs
}

/// The paths of all files but the lock, and but the log of a compaction that a slow machine had no time to end.
fn files(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.metadata().unwrap().len() > 0);
    let mut files: Vec<_> = files.map(|entry| entry.path()).collect();
    files.retain(|path| !path.ends_with("lock"));
    files.sort();
    files
}

#[tokio::test]
async fn a_flipped_byte_anywhere_only_makes_counts_older() {
    let (home, plan) = filled().await;
    assert_eq!(hits(&copied(&home), &plan).await.1, [3; KEYS]);
    for file in 0..files(&home).len() {
        let name = files(&home)[file].file_name().unwrap().to_owned();
        let length = fs::read(&files(&home)[file]).unwrap().len();
        for at in (0..length).step_by(length / 12 + 1).chain([length - 1]) {
            let copy = copied(&home);
            let path = copy.path().join(&name);
            let mut bytes = fs::read(&path).unwrap();
            bytes[at] ^= 0x40;
            fs::write(&path, bytes).unwrap();
            let (store, hits) = hits(&copy, &plan).await;
            assert!(hits.iter().all(|&hits| hits <= 3), "{name:?} {at}: {hits:?}");
            // Each file is one frame, which no other file replaces.
            let lost = hits.iter().any(|&hits| hits < 3);
            assert!(!lost || is_damaged(&store), "{name:?} {at}");
            take(&store, "d", "new", &plan, 1).await;
            store.finish().await;
            assert_eq!(used(&copy.open(), "d", "new", &plan).await, 1);
        }
    }
}

#[tokio::test]
async fn a_file_that_is_cut_or_missing_only_makes_counts_older() {
    let (home, plan) = filled().await;
    for file in 0..files(&home).len() {
        let name = files(&home)[file].file_name().unwrap().to_owned();
        let length = fs::read(&files(&home)[file]).unwrap().len();
        for cut in [Some(0), Some(20), Some(length / 2), Some(length - 1), None] {
            let copy = copied(&home);
            let path = copy.path().join(&name);
            match cut {
                Some(cut) => {
                    let bytes = fs::read(&path).unwrap();
                    fs::write(&path, &bytes[..cut]).unwrap();
                }
                None => fs::remove_file(&path).unwrap(),
            }
            let (store, hits) = hits(&copy, &plan).await;
            assert!(hits.iter().all(|&hits| hits <= 3), "{name:?} {cut:?}: {hits:?}");
            let lost = hits.iter().any(|&hits| hits < 3);
            assert!(!lost || is_damaged(&store), "{name:?} {cut:?}");
            assert_eq!(torn_logs(&store), 0, "{name:?} {cut:?}");
            take(&store, "d", "new", &plan, 1).await;
            store.finish().await;
            assert_eq!(used(&copy.open(), "d", "new", &plan).await, 1);
        }
    }
}

#[tokio::test]
async fn a_damaged_directory_is_replaced_by_a_snapshot() {
    let (home, plan) = filled().await;
    for path in files(&home).iter().filter(|path| !path.ends_with("meta")) {
        let mut bytes = fs::read(path).unwrap();
        bytes[40] ^= 1;
        // More follows, so that it is no torn end.
        bytes.extend_from_slice(&bytes.clone());
        fs::write(path, bytes).unwrap();
    }
    let store = home.try_open(SOON, NEVER).unwrap();
    assert!(is_damaged(&store));
    wait_for("there is a new snapshot", || {
        let files = home.files();
        matches!(&*files, [log, snapshot] if log[3..] == snapshot[4..]).then_some(())
    });
    take(&store, "d", "a", &plan, 1).await;
    store.finish().await;
    drop(store);
    let store = home.open();
    assert!(!is_damaged(&store));
    assert_eq!(used(&store, "d", "a", &plan).await, 1);
}

#[tokio::test]
async fn an_unknown_version_refuses_to_start_and_changes_nothing() {
    let (home, _) = filled().await;
    let mut meta = b"weirdisk".to_vec();
    meta.extend_from_slice(&2_u32.to_le_bytes());
    meta.extend_from_slice(&0_u32.to_le_bytes());
    meta.extend_from_slice(&crc32fast::hash(&meta).to_le_bytes());
    fs::write(home.path().join("meta"), meta).unwrap();
    let contents = || files(&home).into_iter().map(|path| (fs::read(&path).unwrap(), path));
    let before: Vec<_> = contents().collect();
    let error = home.try_open(SOON, Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("has format 2, and this version of weir knows format 1"), "{error}");
    assert_eq!(contents().collect::<Vec<_>>(), before);
}

#[tokio::test]
async fn a_directory_without_its_secret_starts_over() {
    let (home, plan) = filled().await;
    fs::write(home.path().join("meta"), "x").unwrap();
    let (store, hits) = hits(&home, &plan).await;
    assert_eq!(hits, [0; KEYS]);
    assert!(is_damaged(&store));
    assert!(matches!(Meta::read(&home.path()).unwrap(), MetaFile::Valid(_)));
}

#[tokio::test]
async fn a_lost_meta_beside_logs_counts_as_damage() {
    for meta in [Some("x"), None] {
        let (home, plan) = (Home::new(), plan(3, Unit::Year));
        let store = home.open();
        take(&store, "d", "a", &plan, 1).await;
        store.finish().await;
        drop(store);
        assert!(!is_damaged(&home.open()));
        let path = home.path().join("meta");
        match meta {
            Some(meta) => fs::write(path, meta).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        assert!(home.open().status.recovery().0.damage.files > 0, "{meta:?}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_refuses_to_start_and_stays() {
    let (home, _) = filled().await;
    let snapshot = home.files().into_iter().find(|name| name.starts_with("snap")).unwrap();
    let path = home.path().join(&snapshot);
    fs::remove_file(&path).unwrap();
    // Also root cannot open it.
    std::os::unix::fs::symlink(&snapshot, &path).unwrap();
    let error = home.try_open(SOON, Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains(&format!("{snapshot} in it cannot be read")), "{error}");
    assert!(fs::symlink_metadata(&path).is_ok());
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_not_replaced() {
    let (home, _) = filled().await;
    // It can be opened, but not read.
    std::os::unix::fs::symlink("/proc/self/mem", home.path().join("log.99")).unwrap();
    let before = home.files();
    let schedule = Schedule { sync: SOON, compact: Duration::ZERO, min_obsolete_bytes: 0 };
    let store = wait_for("the directory is unlocked", || {
        open_with(home.clock.clone(), home.options(SOON), schedule).ok()
    });
    let error = timeout(Duration::from_secs(60), store.load_error()).await.unwrap();
    assert!(error.contains("log.99 in it cannot be read"), "{error}");
    assert!(!store.is_ready());
    store.finish().await;
    assert_eq!(home.files(), before);
}

#[test]
fn only_the_owner_reads_the_secret() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    drop(home.open());
    for path in files(&home) {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path:?}");
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.path()), 0o700);
}

#[tokio::test]
async fn a_damaged_snapshot_is_replaced_by_the_one_before() {
    let (home, plan) = filled().await;
    // As if the process had died before it removed what a newer snapshot replaces.
    let old = copied(&home);
    let store = home.try_open(SOON, Duration::ZERO).unwrap();
    make_obsolete(&home, &store).await;
    let newest = wait_for("there is another snapshot", || {
        let files = home.files();
        let snapshots: Vec<_> = files.iter().filter(|name| name.starts_with("snap")).collect();
        matches!(&*snapshots, [only] if !old.files().contains(only)).then(|| snapshots[0].clone())
    });
    store.finish().await;
    let bytes = fs::read(home.path().join(&newest)).unwrap();
    for (cut, name) in [(bytes.len(), "whole"), (bytes.len() - 1, "cut"), (0, "empty")] {
        let both = copied(&old);
        fs::write(both.path().join(&newest), &bytes[..cut]).unwrap();
        let (store, hits) = hits(&both, &plan).await;
        assert_eq!(hits, [3; KEYS], "{name}");
        let is_whole = name == "whole";
        assert_eq!(is_damaged(&store), !is_whole, "{name}");
        // What a whole snapshot replaces is gone, and only that.
        let is_left = |file: &&String| old.files().contains(file);
        let left = both.files().iter().filter(is_left).count();
        assert_eq!(left, if is_whole { 0 } else { old.files().len() }, "{name}");
        assert!(both.files().contains(&newest));
    }
}

#[tokio::test]
async fn a_damaged_first_snapshot_does_not_hide_older_logs() {
    let (home, plan) = (Home::new(), plan(3, Unit::Year));
    let store = home.open();
    for i in 0..KEYS {
        take(&store, "d", &i.to_string(), &plan, 2).await;
    }
    store.finish().await;
    drop(store);
    let old = copied(&home);
    let store = home.try_open(SOON, Duration::ZERO).unwrap();
    make_obsolete(&home, &store).await;
    let snapshot = wait_for("there is a snapshot", || {
        home.files().into_iter().find(|name| name.starts_with("snap"))
    });
    store.finish().await;
    let mut bytes = fs::read(home.path().join(&snapshot)).unwrap();
    bytes[50] ^= 1;
    fs::write(old.path().join(&snapshot), bytes).unwrap();
    let (store, hits) = hits(&old, &plan).await;
    assert_eq!(hits, [2; KEYS]);
    assert!(is_damaged(&store));
}

#[tokio::test]
async fn only_a_log_that_was_not_closed_may_be_torn() {
    let (home, plan) = (Home::new(), plan(3, Unit::Year));
    let store = home.open();
    take(&store, "d", "a", &plan, 1).await;
    store.finish().await;
    drop(store);
    let [log] = &*home.files() else { panic!("{:?}", home.files()) };
    let opened = |change: &dyn Fn(&Path)| {
        let copy = copied(&home);
        change(&copy.path());
        let store = copy.open();
        (is_damaged(&store), torn_logs(&store))
    };
    let cut = |path: &Path| {
        let bytes = fs::read(path.join(log)).unwrap();
        fs::write(path.join(log), &bytes[..bytes.len() - 1]).unwrap();
    };
    assert_eq!(opened(&|_| {}), (false, 0));
    assert_eq!(opened(&cut), (true, 0));
    assert_eq!(opened(&|path| fs::write(path.join(log), "").unwrap()), (true, 0));
    assert_eq!(opened(&|path| fs::remove_file(path.join(log)).unwrap()), (true, 0));
    let killed = |path: &Path| fs::remove_file(path.join("closed")).unwrap();
    assert_eq!(opened(&killed), (false, 0));
    assert_eq!(opened(&|path| (killed(path), cut(path)).0), (false, 1));
    // A process that is killed leaves no record of sizes, whatever one before has left.
    let store = home.try_open(SOON, NEVER).unwrap();
    take(&store, "d", "a", &plan, 1).await;
    wait_for_sync(&store);
    assert!(!home.path().join("closed").exists());
}

#[tokio::test]
async fn a_damaged_copy_of_meta_is_repaired() {
    let home = Home::new();
    drop(home.open());
    let path = home.path().join("meta");
    let whole = fs::read(&path).unwrap();
    for at in [20, 4096 + 20] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(!is_damaged(&home.open()));
        assert_eq!(fs::read(&path).unwrap(), whole, "{at}");
    }
}
