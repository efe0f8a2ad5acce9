//! Controls in memory and in a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::*;
use crate::controls::file::ControlFile;

fn options(path: &Path) -> Options {
    Options { file: Some(path.to_owned()), ..Options::default() }
}

#[tokio::test]
async fn controls_are_put_listed_and_deleted() {
    let process = Process::new(Options::default());
    let ann = process.put(block("ann")).await;
    assert!(!ann.shared && !ann.kept);
    let long = draft(
        r#"{"domain":"d","entries":[{"key":"user","value":"bob"}],"action":"block","for":"forever"}"#,
    );
    let bob = process.put(long).await.control;
    process.clock.advance(SECOND);
    process.put(block("cid")).await;
    assert_eq!(process.blocked(&["ann", "bob", "cid", "dan"]), ["ann", "bob", "cid"]);
    let listed = process.controls.list();
    let users: Vec<_> = listed.iter().map(|control| &*control.entries[0].value).collect();
    assert_eq!(users, ["ann", "cid", "bob"], "by the time left");
    assert_eq!(process.controls.get(&bob.id).as_deref(), Some(&bob));
    assert_eq!(process.controls.delete(&bob.id).await.unwrap().control, bob);
    let error = process.controls.delete(&bob.id).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert_eq!(process.blocked(&["ann", "bob"]), ["ann"]);
    process.clock.advance(3_600 * SECOND);
    assert_eq!((process.blocked(&["ann"]), process.controls.list().len()), (vec![], 0));
}

#[tokio::test]
async fn controls_survive_a_restart_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controls.json");
    let process = Process::new(options(&path));
    assert!(process.put(block("ann")).await.kept);
    let bob = process.put(block("bob")).await.control;
    process.controls.delete(&bob.id).await.unwrap();
    let restarted = Process::new(options(&path));
    assert_eq!(restarted.blocked(&["ann", "bob"]), ["ann"]);
    assert_eq!(restarted.controls.list(), process.controls.list());
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    let names: std::collections::BTreeSet<_> = names.iter().filter_map(|it| it.to_str()).collect();
    assert!(names.into_iter().eq(["controls.json", "controls.json.copy"]));
}

#[tokio::test]
async fn an_unreadable_file_is_ignored_and_kept_as_a_copy() {
    for damaged in ["", "{\"version\":1,\"contr", "{\"version\":2}", "{\"version\":1}", "\0"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("controls.json");
        fs::write(&path, damaged).unwrap();
        let process = Process::new(options(&path));
        assert!(process.controls.list().is_empty());
        assert!(process.controls.missing() > 0, "{damaged:?}");
        assert!(process.put(block("ann")).await.kept);
        let kept = directory.path().join("controls.json.damaged");
        assert_eq!(fs::read_to_string(&kept).unwrap(), damaged);
        let restarted = Process::new(options(&path));
        assert_eq!(restarted.blocked(&["ann"]), ["ann"]);
        assert!(restarted.controls.missing() > 0, "nobody has looked: {damaged:?}");
        fs::remove_file(kept).unwrap();
        assert_eq!(restarted.controls.missing(), 0);
        assert_eq!(Process::new(options(&path)).controls.missing(), 0);
    }
}

const USERS: [&str; 5] = ["ann", "bob", "cid", "dan", "eve"];

/// Returns a directory with the file of a process that has blocked all users but the last, who was blocked
/// and then not any more.
async fn kept_in(directory: &Path) -> PathBuf {
    let path = directory.join("controls.json");
    let process = Process::new(options(&path));
    for user in USERS {
        assert!(process.put(block(user)).await.kept);
    }
    let eve = process.controls.list().into_iter().find(|it| it.entries[0].value == "eve").unwrap();
    assert!(process.controls.delete(&eve.id).await.unwrap().kept);
    path
}

#[tokio::test]
async fn any_damaged_byte_is_restored_from_the_copy_or_costs_one_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = kept_in(directory.path()).await;
    let copy = directory.path().join("controls.json.copy");
    let (text, whole) = (fs::read(&path).unwrap(), USERS[..4].to_vec());
    assert_eq!(fs::read(&copy).unwrap(), text);
    for at in 0..text.len() {
        let mut damaged = text.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).unwrap();
        fs::write(&copy, &text).unwrap();
        let restored = Process::new(options(&path));
        assert_eq!(restored.blocked(&USERS), whole, "byte {at}");
        assert_eq!(restored.controls.missing(), 0, "byte {at}");

        fs::remove_file(&copy).unwrap();
        let lacking = Process::new(options(&path));
        let blocked = lacking.blocked(&USERS);
        let differ = USERS.iter().filter(|it| blocked.contains(it) != whole.contains(it));
        // A line end that is damaged joins two lines.
        assert!(differ.count() <= 2, "byte {at}: {blocked:?}");
        assert!(blocked == whole || lacking.controls.missing() > 0, "byte {at}: {blocked:?}");
    }
}

#[tokio::test]
async fn a_file_that_was_cut_off_is_restored_from_the_copy() {
    let directory = tempfile::tempdir().unwrap();
    let path = kept_in(directory.path()).await;
    let copy = directory.path().join("controls.json.copy");
    let text = fs::read(&path).unwrap();
    for len in 0..text.len() {
        fs::write(&path, &text[..len]).unwrap();
        fs::write(&copy, &text).unwrap();
        let process = Process::new(options(&path));
        assert_eq!(process.blocked(&USERS), USERS[..4], "{len} bytes");
        assert_eq!(process.controls.missing(), 0, "{len} bytes");
        // A crash may leave a copy that lacks the last changes, or a part of one.
        fs::write(&path, &text).unwrap();
        fs::write(&copy, &text[..len]).unwrap();
        let process = Process::new(options(&path));
        assert_eq!(process.blocked(&USERS), USERS[..4], "{len} bytes of the copy");
        assert_eq!(process.controls.missing(), 0, "{len} bytes of the copy");
    }
    fs::remove_file(&path).unwrap();
    fs::write(&copy, &text).unwrap();
    assert_eq!(Process::new(options(&path)).blocked(&USERS), USERS[..4]);
}

#[tokio::test]
async fn a_copy_of_an_older_file_brings_nothing_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = kept_in(directory.path()).await;
    let copy = directory.path().join("controls.json.copy");
    let old = fs::read(&copy).unwrap();
    // The first change after a start replaces the file.
    let process = Process::new(options(&path));
    for control in process.controls.list() {
        process.controls.delete(&control.id).await.unwrap();
    }
    process.put(block("eve")).await;
    // As if the crash came before the copy was replaced.
    fs::write(&copy, &old).unwrap();
    assert_eq!(Process::new(options(&path)).blocked(&USERS), ["eve"]);
}

#[tokio::test]
async fn a_file_of_the_first_version_is_read_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controls.json");
    let controls: serde_json::Map<_, _> = ["ann", "bob"]
        .map(|user| {
            let mut row = control(Action::Block, &[("user", user)]);
            row.id = user.to_owned();
            (user.to_owned(), serde_json::to_value(row).unwrap())
        })
        .into_iter()
        .collect();
    let json = serde_json::json!({ "version": 1, "controls": controls });
    fs::write(&path, format!("{json:#}\n")).unwrap();
    let process = Process::new(options(&path));
    assert_eq!((process.blocked(&USERS), process.controls.missing()), (vec!["ann", "bob"], 0));
    process.controls.run_once(None).await;
    assert!(!fs::read_to_string(&path).unwrap().starts_with('{'));
    assert_eq!(Process::new(options(&path)).blocked(&USERS), ["ann", "bob"]);
}

#[tokio::test]
async fn the_file_grows_by_changes_and_is_replaced_now_and_then() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controls.json");
    let process = Process::new(options(&path));
    process.put(block("ann")).await;
    let one = fs::metadata(&path).unwrap().len();
    let mut largest = 0;
    for _ in 0..1_100 {
        process.put(block("bob")).await;
        largest = largest.max(fs::metadata(&path).unwrap().len());
    }
    assert!(largest > 500 * one && largest < 1_200 * one, "{largest} bytes, {one} for one");
    assert_eq!(Process::new(options(&path)).blocked(&USERS), ["ann", "bob"]);
    // A file that somebody else replaces, or removes, is written again.
    fs::remove_file(&path).unwrap();
    assert!(process.put(block("cid")).await.kept);
    assert_eq!(Process::new(options(&path)).blocked(&USERS), ["ann", "bob", "cid"]);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(options(&directory.path().join("none/controls.json")));
    assert!(!process.put(block("ann")).await.kept);
    assert_eq!(process.blocked(&["ann"]), ["ann"]);
}

#[tokio::test]
async fn what_is_not_compared_has_room_beside_too_many_that_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controls.json");
    let put = |process: Process, user: &'static str| async move {
        let entries = format!(r#"[{{"key":"user","value":"{user}"}}]"#);
        let body = format!(r#"{{"domain":"d","entries":{entries},"action":"block"}}"#);
        let id = user.replace('*', "-");
        let put = process.controls.put(Some(&id), draft(&body), PutOptions::default()).await;
        put.map(drop).map_err(|error| error.kind)
    };
    assert_eq!(put(Process::new(options(&path)), "a*").await, Ok(()));
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().last().unwrap().split_once(' ').unwrap().1;
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let row = line["row"].to_string();
    let mut json = serde_json::json!({ "version": 1, "controls": {} });
    for i in 0..MAX_COMPARED + 20 {
        let (id, other) = (format!("c{i}"), row.replace("\"a-\"", &format!("\"c{i}\"")));
        json["controls"][id] = serde_json::from_str(&other).unwrap();
    }
    fs::write(&path, json.to_string()).unwrap();
    assert_eq!(put(Process::new(options(&path)), "b*").await, Err(ErrorKind::TooMany));
    assert_eq!(put(Process::new(options(&path)), "mallory").await, Ok(()));
}

#[tokio::test]
async fn a_file_that_could_not_be_written_is_written_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none/controls.json");
    let process = Process::new(options(&path));
    assert!(!process.put(block("ann")).await.kept);
    fs::create_dir(path.parent().unwrap()).unwrap();
    process.controls.run_once(None).await;
    assert_eq!(Process::new(options(&path)).blocked(&["ann"]), ["ann"]);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it names clients");
}

#[test]
fn after_a_write_that_was_not_made_the_next_one_has_all_rows() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = ControlFile::new(directory.path().join("controls.json"), 1, 0, false);
    let row = |id: &str| (id.to_owned(), Some("{}".to_owned()));
    let all = file.begin();
    assert!(all.is_none());
    file.write(&[row("a")], all).unwrap();
    assert!(!file.is_outdated);
    // No thread could be started: its changes are in no file.
    assert!(file.begin().is_some());
    assert!(file.is_outdated && file.begin().is_none());
    file.write(&[row("a"), row("b")], None).unwrap();
    assert!(!file.is_outdated && file.begin().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_at_once_are_all_active() {
    let process = Arc::new(Process::new(Options::default()));
    let users: Vec<String> = (0..200).map(|i| i.to_string()).collect();
    let put = |user: &String| {
        let (process, draft) = (process.clone(), block(user));
        tokio::spawn(async move { process.put(draft).await })
    };
    for put in users.iter().map(put).collect::<Vec<_>>() {
        put.await.unwrap();
    }
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    assert_eq!(process.blocked(&users), users);
    let delete = |control: Arc<Control>| {
        let process = process.clone();
        tokio::spawn(async move { process.controls.delete(&control.id).await.unwrap() })
    };
    for deleted in process.controls.list().into_iter().map(delete).collect::<Vec<_>>() {
        deleted.await.unwrap();
    }
    assert_eq!(process.blocked(&users), [""; 0]);
}
