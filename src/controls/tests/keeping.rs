//! Controls in memory and in a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

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
    assert_eq!(names, ["controls.json"]);
}

#[tokio::test]
async fn a_damaged_file_is_ignored_and_kept_as_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controls.json");
    for damaged in ["", "{\"version\":1,\"contr", "{\"version\":2}", "{\"version\":1}", "\0"] {
        fs::write(&path, damaged).unwrap();
        let process = Process::new(options(&path));
        assert!(process.controls.list().is_empty());
        assert!(process.put(block("ann")).await.kept);
        let copy = fs::read_to_string(directory.path().join("controls.json.damaged")).unwrap();
        assert_eq!(copy, damaged);
        assert_eq!(Process::new(options(&path)).blocked(&["ann"]), ["ann"]);
    }
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
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let row = json["controls"]["a-"].to_string();
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
