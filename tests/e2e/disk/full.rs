//! A disk without room.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::{gauge, on_disk, try_hit};
use crate::support::wait_for;

/// A small file system in memory.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts it; none without the right to.
    fn mount() -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(directory.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(SmallDisk(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

/// Takes all room that is left.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [64 << 10, 4 << 10, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

#[test]
fn a_full_disk_stops_writing_and_not_deciding() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: no right to mount a small file system");
        return;
    };
    let path = disk.path().join("counters");
    let mut weir = on_disk(&path, "20ms").start();
    assert!(try_hit(weir.http, "before").unwrap().allowed);
    wait_for("it is written", || {
        (weir.metric("weir_disk_written_records_total") > 0).then_some(())
    });
    let rest = disk.path().join("rest");
    fill(&rest);
    let mut users = 0;
    wait_for("writing fails", || {
        users += 1;
        assert!(try_hit(weir.http, &format!("user {users}")).unwrap().allowed);
        (weir.metric("weir_disk_write_errors_total") > 0).then_some(())
    });
    assert!(weir.until_said("cannot save counters").is_ok());
    wait_for("the metric shows it", || {
        assert!(try_hit(weir.http, "during").unwrap().allowed);
        (gauge(&weir, "weir_disk_sync_age_seconds") > 1.0).then_some(())
    });
    let [(kind, problem)] = &weir.problems()[..] else { panic!("{:?}", weir.problems()) };
    assert!(kind == "disk" && problem["text"].to_string().contains("No space left"), "{problem}");
    assert!(problem["since"].is_string() && problem["file"].is_string(), "{problem}");
    fs::remove_file(&rest).unwrap();
    assert!(weir.until_said("counters are saved again").is_ok());
    assert_eq!(weir.problems(), []);
    let last = try_hit(weir.http, "during").unwrap().remaining;
    wait_for("it is written again", || {
        // Everything until a second ago, and the last hit is older.
        (gauge(&weir, "weir_disk_sync_age_seconds") < 0.5).then_some(())
    });
    let written = weir.metric("weir_disk_written_records_total");
    try_hit(weir.http, "after");
    wait_for("so is a later hit", || {
        (weir.metric("weir_disk_written_records_total") > written).then_some(())
    });
    weir.kill();
    let weir = on_disk(&path, "20ms").start();
    assert_eq!(try_hit(weir.http, "during").unwrap().remaining, last - 1);
    assert_eq!(try_hit(weir.http, "before").unwrap().remaining, 2_998);
}
