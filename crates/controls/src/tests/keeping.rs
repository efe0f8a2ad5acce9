//! Controls in memory and in a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::*;
use crate::file::{self, ControlFile};

fn options(path: &Path) -> ControlsOptions {
    ControlsOptions { file: Some(path.to_owned()), ..ControlsOptions::default() }
}

#[tokio::test]
async fn controls_are_put_listed_and_deleted() {
    let process = Process::new(ControlsOptions::default());
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
async fn whom_a_block_spares_survives_a_restart_and_a_new_block_of_the_same_replaces_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controls.json");
    let all =
        |except: &str| draft(&format!(r#"{{"domain":"d","entries":[],"action":"block"{except}}}"#));
    let process = Process::new(options(&path));
    let force = PutOptions { force: true, ..PutOptions::default() };
    let spares = all(r#","except":[{"key":"usr","value":"10.0.0.1/8"}]"#);
    let spared = process.controls.put(None, spares, force).await.unwrap();
    let [unknown, network] = &spared.warnings[..] else { panic!("{:?}", spared.warnings) };
    assert!(unknown.contains("unknown key 'usr': did you mean 'user'?"), "{unknown}");
    assert!(network.contains("10.0.0.0/8"), "{network}");
    assert_eq!(Process::new(options(&path)).controls.list()[0].except, spared.control.except);
    let replaced = process.controls.put(None, all(""), force).await.unwrap();
    assert_eq!(replaced.control.id, spared.control.id);
    let warning = format!("it replaces {}: block d except usr=10.0.0.1/8", spared.control.id);
    assert_eq!(replaced.warnings, [warning]);
    assert_eq!(process.controls.list().len(), 1);
}

/// Returns how many files an operator has to look at.
fn damaged(process: &Process) -> usize {
    process.controls.damaged_files().count()
}

#[tokio::test]
async fn a_file_that_is_no_document_is_reported_until_somebody_has_looked() {
    for text in ["", "\0\0\0", "{\"version\":1,\"contr", "{\"version\":2}", "{\"version\":1}"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("controls.json");
        let copy = directory.path().join("controls.json.copy");
        fs::write(&path, text).unwrap();
        // As a power cut may leave both.
        fs::write(&copy, text).unwrap();
        let process = Process::new(options(&path));
        assert!(process.controls.list().is_empty());
        assert_eq!(damaged(&process), 2, "{text:?}");
        assert!(process.put(block("ann")).await.kept);
        let restarted = Process::new(options(&path));
        assert_eq!(restarted.blocked(&["ann"]), ["ann"]);
        assert_eq!(damaged(&restarted), 2, "nobody has looked: {text:?}");
        for (file, left) in [("controls.json.damaged", 1), ("controls.json.copy.damaged", 0)] {
            let kept = directory.path().join(file);
            assert_eq!(fs::read_to_string(&kept).unwrap(), text);
            fs::remove_file(kept).unwrap();
            assert_eq!(damaged(&restarted), left);
        }
        assert_eq!(damaged(&Process::new(options(&path))), 0);
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
async fn any_damaged_byte_is_reported_and_restored_from_the_copy() {
    let directory = tempfile::tempdir().unwrap();
    let path = kept_in(directory.path()).await;
    let copy = directory.path().join("controls.json.copy");
    let text = fs::read(&path).unwrap();
    assert_eq!(fs::read(&copy).unwrap(), text);
    for at in 0..text.len() {
        let mut other = text.clone();
        other[at] ^= 1 << (at % 8);
        for (damaged_path, whole) in [(&path, &copy), (&copy, &path)] {
            fs::write(damaged_path, &other).unwrap();
            fs::write(whole, &text).unwrap();
            let process = Process::new(options(&path));
            assert_eq!(process.blocked(&USERS), USERS[..4], "byte {at} of {damaged_path:?}");
            assert_eq!(damaged(&process), 1, "byte {at} of {damaged_path:?}");
            fs::remove_file(process.controls.damaged_files().next().unwrap()).unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_that_was_cut_off_or_removed_is_restored_from_the_copy() {
    let directory = tempfile::tempdir().unwrap();
    let path = kept_in(directory.path()).await;
    let copy = directory.path().join("controls.json.copy");
    let text = fs::read(&path).unwrap();
    // Without its line end it is whole.
    for len in 0..text.len() - 1 {
        for (cut, whole) in [(&path, &copy), (&copy, &path)] {
            fs::write(cut, &text[..len]).unwrap();
            fs::write(whole, &text).unwrap();
            let process = Process::new(options(&path));
            assert_eq!(process.blocked(&USERS), USERS[..4], "{len} bytes of {cut:?}");
            assert_eq!(damaged(&process), 1, "{len} bytes of {cut:?}");
            fs::remove_file(process.controls.damaged_files().next().unwrap()).unwrap();
        }
    }
    for gone in [&path, &copy] {
        fs::write(&path, &text).unwrap();
        fs::write(&copy, &text).unwrap();
        fs::remove_file(gone).unwrap();
        let process = Process::new(options(&path));
        assert_eq!((process.blocked(&USERS), damaged(&process)), (USERS[..4].to_vec(), 0));
        process.controls.run_once(None).await;
        assert_eq!(fs::read(gone).unwrap(), text);
    }
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
async fn a_file_that_another_program_removes_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controls.json");
    let process = Process::new(options(&path));
    process.put(block("ann")).await;
    fs::remove_file(&path).unwrap();
    assert!(process.put(block("cid")).await.kept);
    assert_eq!(Process::new(options(&path)).blocked(&USERS), ["ann", "cid"]);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(options(&directory.path().join("none/controls.json")));
    let ann = process.put(block("ann")).await;
    let cause = ann.not_kept_because.unwrap();
    assert!(
        !ann.kept && cause.contains("controls.json cannot be written: No such file"),
        "{cause}"
    );
    assert_eq!(process.controls.unkept().unwrap().since, NOW);
    assert_eq!(process.blocked(&["ann"]), ["ann"]);
    let deleted = process.controls.delete(&ann.control.id).await.unwrap();
    assert_eq!((deleted.kept, deleted.not_kept_because), (false, Some(cause)));
}

#[tokio::test]
async fn a_directory_that_is_missing_at_the_start_is_reported_and_what_appears_in_it_stays() {
    let directory = tempfile::tempdir().unwrap();
    let [volume, away] = ["volume", "away"].map(|name| directory.path().join(name));
    fs::create_dir(&volume).unwrap();
    let path = kept_in(&volume).await;
    fs::rename(&volume, &away).unwrap();
    let process = Process::new(options(&path));
    let error = async || {
        process.controls.run_once(None).await;
        process.controls.unkept().map(|unkept| unkept.error).unwrap_or_default()
    };
    assert!(error().await.contains("cannot be written: No such file"));
    process.put(block("eve")).await;
    fs::rename(&away, &volume).unwrap();
    assert!(error().await.contains("restart weir to read it"));
    assert_eq!(Process::new(options(&path)).blocked(&USERS), USERS[..4]);
    fs::remove_dir_all(&volume).unwrap();
    fs::create_dir(&volume).unwrap();
    assert_eq!(error().await, "");
    assert_eq!(Process::new(options(&path)).blocked(&USERS), ["eve"]);
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
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = document["controls"]["a-"].to_string();
    let row_of = |id: String| {
        let row = row.replace("\"a-\"", &format!("\"{id}\""));
        (id, Some(row))
    };
    let mut file = ControlFile::new(path.clone());
    file.change((0..MAX_COMPARED + 20).map(|i| row_of(format!("c{i}"))).collect());
    file.write().unwrap();
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
    let path = directory.path().join("controls.json");
    let mut file = ControlFile::new(path.clone());
    let row = |id: &str| (id.to_owned(), Some("{}".to_owned()));
    file.change(vec![row("a")]);
    // No thread could be started.
    assert!(file.is_outdated);
    file.change(vec![row("b"), row("c"), ("c".to_owned(), None)]);
    file.write().unwrap();
    assert!(!file.is_outdated);
    let rows = file::read(&path).rows.unwrap();
    assert!(rows.keys().eq(["a", "b"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_at_once_are_all_active() {
    let process = Arc::new(Process::new(ControlsOptions::default()));
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
