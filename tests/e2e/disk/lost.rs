//! A directory that another program removes.

use std::fs;

use super::*;

#[test]
fn a_removed_directory_is_reported_and_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("counters");
    let mut weir = on_disk(&path, "20ms").start();
    for _ in 0..3 {
        assert!(try_hit(weir.http, "a").unwrap().allowed);
    }
    let status = || -> serde_json::Value {
        let status = http::get(weir.debug, "/status").body;
        serde_json::from_str::<serde_json::Value>(&status).unwrap()["store"]["backends"][0].clone()
    };
    assert_eq!(status()["files_lost"], 0);
    // At once: what weir writes while the files are removed one by one would be in the way.
    let removed = directory.path().join("removed");
    fs::rename(&path, &removed).unwrap();
    fs::remove_dir_all(&removed).unwrap();
    wait_for("the metric shows it", || {
        (weir.metric("weir_disk_files_lost_total") == 1).then_some(())
    });
    wait_for("the files are there again", || path.join("snap.2").exists().then_some(()));
    wait_for("it is saved", || status()["not_saved_because"].is_null().then_some(()));
    assert_eq!(status()["files_lost"], 1);
    assert!(weir.until_said("files of counters were removed or replaced").is_ok());
    assert!(weir.until_said("counters are saved again").is_ok());
    weir.kill();
    let weir = on_disk(&path, "20ms").start();
    assert_eq!(try_hit(weir.http, "a").unwrap().remaining, 2_996);
}

#[test]
fn a_start_without_logs_reports_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut weir = on_disk(directory.path(), "20ms").start();
    assert!(try_hit(weir.http, "a").unwrap().allowed);
    weir.kill();
    fs::remove_file(directory.path().join("log.1")).unwrap();
    let mut weir = on_disk(directory.path(), "20ms").start();
    assert!(weir.until_said("all logs of counters are missing").is_ok());
    assert_eq!(weir.metric(r#"weir_disk_damaged{part="file"}"#), 1);
}
