//! Files that are not those of a store, under the names of its files.

use std::os::unix::fs::symlink;
use std::sync::mpsc::sync_channel;

use super::*;

type Make = fn(&Path);

/// Opens a directory, which must not wait for anything.
fn open(home: &Home) -> Result<(), String> {
    let (clock, options) = (home.clock.clone(), home.options(NEVER));
    let (sender, opened) = sync_channel(1);
    std::thread::spawn(move || {
        // A process that another test starts has the lock of the store before until it runs its program.
        let opened = wait_for("the directory is unlocked", || {
            match DiskStore::open(clock.clone(), options.clone(), &Failures::default()) {
                Err(OpenError::InUse(_)) => None,
                opened => Some(opened),
            }
        });
        let _ = sender.send(opened.map(drop).map_err(|error| error.to_string()));
    });
    opened.recv_timeout(Duration::from_secs(60)).expect("it does not wait")
}

async fn used_once() -> (Home, Arc<Plan>) {
    let (home, plan) = (Home::new(), plan(9, Unit::Year));
    let store = home.open();
    take(&store, "d", "a", &plan, 2).await;
    store.finish().await;
    (home, plan)
}

#[tokio::test]
async fn what_is_no_regular_file_is_named_and_not_opened() {
    let kinds: [(&str, Make); 4] = [
        ("a FIFO", make_fifo),
        ("a directory", |path| fs::create_dir(path).unwrap()),
        ("a device", |path| symlink("/dev/zero", path).unwrap()),
        ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
    ];
    for name in ["log.5", "snap.7", "meta", "closed", "lock"] {
        for (kind, make) in kinds {
            let (home, plan) = used_once().await;
            let path = home.path().join(name);
            let aside = home.directory.path().join("aside");
            let was_there = fs::rename(&path, &aside).is_ok();
            make(&path);
            let error = open(&home).unwrap_err();
            let wanted = format!("{name} in it cannot be read: it is {kind} and not a regular");
            assert!(error.contains(&wanted), "{error}");
            match kind {
                "a directory" => fs::remove_dir(&path).unwrap(),
                _ => fs::remove_file(&path).unwrap(),
            }
            if was_there {
                fs::rename(&aside, &path).unwrap();
            }
            assert_eq!(used(&home.open(), "d", "a", &plan).await, 2, "{name}");
        }
    }
}

#[tokio::test]
async fn a_path_that_is_a_fifo_is_no_directory() {
    let home = Home::new();
    make_fifo(&home.path());
    assert!(open(&home).unwrap_err().contains("Not a directory"));
}

#[tokio::test]
async fn unfinished_files_are_replaced_whatever_they_are() {
    let (home, plan) = used_once().await;
    let target = home.directory.path().join("target");
    fs::write(&target, "not ours").unwrap();
    make_fifo(&home.path().join("closed.tmp"));
    symlink(&target, home.path().join("meta.tmp")).unwrap();
    make_fifo(&home.path().join("log.3.tmp"));
    // It is written again.
    fs::remove_file(home.path().join("meta")).unwrap();
    let store = home.open();
    take(&store, "d", "a", &plan, 3).await;
    store.finish().await;
    drop(store);
    assert_eq!(fs::read(target).unwrap(), b"not ours");
    assert_eq!(used(&home.open(), "d", "a", &plan).await, 3);
}

#[tokio::test]
async fn links_to_regular_files_are_read() {
    let (home, plan) = used_once().await;
    let aside = home.directory.path().join("aside");
    fs::rename(home.path().join("log.1"), &aside).unwrap();
    symlink(&aside, home.path().join("log.1")).unwrap();
    assert_eq!(used(&home.open(), "d", "a", &plan).await, 2);
}

#[tokio::test]
async fn numbers_end_where_they_can_still_grow() {
    for number in [u64::MAX, u64::MAX - 1, u64::MAX / 2 + 1] {
        for kind in ["log", "snap"] {
            let (home, plan) = used_once().await;
            let name = format!("{kind}.{number}");
            fs::write(home.path().join(&name), "not ours").unwrap();
            let error = open(&home).unwrap_err();
            assert!(error.contains(&format!("{name} in it cannot be read")), "{error}");
            assert_eq!(fs::read(home.path().join(&name)).unwrap(), b"not ours");
            fs::remove_file(home.path().join(&name)).unwrap();
            assert_eq!(used(&home.open(), "d", "a", &plan).await, 2);
        }
    }
    // Beside the greatest number of all, weir saves.
    let (home, plan) = used_once().await;
    fs::write(home.path().join(format!("log.{}", u64::MAX / 2)), "").unwrap();
    let store = home.open();
    take(&store, "d", "a", &plan, 3).await;
    store.finish().await;
    assert!(store.status.has_saved_all.load(Ordering::Acquire));
    assert_eq!(store.status.write_errors.load(std::sync::atomic::Ordering::Relaxed), 0);
}
