//! What one build keeps in files, and the other reads.

use super::controls::{RULES, assert_applied, put_each_kind};
use super::{Answer, Build, hit, stop};

#[test]
fn each_build_reads_the_file_of_controls_of_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("controls");
    let start = |build: Build| build.serving(RULES).env("WEIR__CONTROLS__FILE", &file).start();
    let mut names = Vec::new();
    for (build, name) in [(Build::Old, "first"), (Build::New, "second"), (Build::Old, "third")] {
        let weir = start(build);
        assert_applied(&weir, &names);
        put_each_kind(&weir, name);
        names.push(name);
        stop(weir);
    }
    assert_applied(&start(Build::New), &names);
}

#[test]
fn each_build_reads_the_counters_of_the_other_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let rules = RULES.replace("requests_per_unit: 2", "requests_per_unit: 4");
    for (build, left) in [(Build::Old, 3), (Build::New, 2), (Build::Old, 1), (Build::New, 0)] {
        let setup = build.serving(&rules).env("WEIR__STORE__KIND", "disk");
        let weir = setup.env("WEIR__STORE__DISK__PATH", directory.path()).start();
        assert_eq!(hit(&weir, &[("user", "ann")]), Answer::Ok(left), "{build:?}");
        stop(weir);
    }
}
