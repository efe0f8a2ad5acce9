//! The table that all replicas share.

use super::servers::Server;
use super::*;
use crate::controls::{self, Controls, Draft, PutOptions};
use crate::store::{RowChange, SharedTable};

fn row(name: &str, at: Micros, text: &str) -> RowChange {
    RowChange { name: name.into(), at, text: Some(text.into()) }
}

#[test]
fn replicas_share_rows_of_which_the_newest_wins() {
    let server = Server::start();
    runtime().block_on(async {
        let a = connected(options(single(&server))).await;
        let b = connected(options(single(&server))).await;
        assert_eq!(SharedTable::version(&a).await.unwrap().version, "");
        assert_eq!(a.rows().await.unwrap(), []);
        let written = a.write(&[row("x", 5, "five"), row("y", 5, "y")]).await.unwrap();
        let read = SharedTable::version(&b).await.unwrap();
        assert_eq!((written.before.as_str(), &written.after), ("", &read.version));
        let now = SystemClock::new();
        let ours = crate::clock::Clock::now(&now);
        assert!(read.time.abs_diff(ours) < 60 * SECOND, "{} {ours}", read.time);
        // As new or older: nothing changes.
        let older = b.write(&[row("x", 5, "other"), row("x", 4, "four")]).await.unwrap();
        assert_eq!(older.before, older.after);
        let newer = b.write(&[row("x", 6, "six")]).await.unwrap();
        assert_eq!(newer.before, written.after);
        assert_ne!(newer.after, written.after);
        let remove = |name: &str, at| RowChange { name: name.into(), at, text: None };
        b.write(&[remove("x", 5), remove("y", 5)]).await.unwrap();
        assert_eq!(a.rows().await.unwrap(), [("x".to_owned(), "six".to_owned())]);
    });
}

#[test]
fn many_rows_are_written_in_several_calls() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let rows: Vec<_> = (0..1_001).map(|i| row(&i.to_string(), 1, "text")).collect();
        let written = store.write(&rows).await.unwrap();
        assert_eq!(written.before, "");
        assert_eq!(SharedTable::version(&store).await.unwrap().version, written.after);
        assert_eq!(store.rows().await.unwrap().len(), 1_001);
    });
}

#[test]
fn a_server_that_is_away_is_an_error_until_it_is_back() {
    let mut server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        store.write(&[row("x", 1, "x")]).await.unwrap();
        server.kill();
        until("an error", async || store.rows().await.is_err()).await;
        assert!(store.write(&[row("y", 1, "y")]).await.is_err());
        server.restart();
        let write = async || store.write(&[row("y", 1, "y")]).await.is_ok();
        until("it to be back", write).await;
        assert_eq!(store.rows().await.unwrap(), [("y".to_owned(), "y".to_owned())]);
    });
}

/// A replica with controls, on a store of its own.
struct Replica {
    controls: Arc<Controls>,
    running: tokio::task::JoinHandle<()>,
}

impl Replica {
    async fn start(topology: Topology) -> Replica {
        let store = connected(options(topology)).await;
        let options = controls::Options { is_shared: true, ..controls::Options::default() };
        let controls = Arc::new(Controls::new(Arc::default(), options, || {}));
        let run = controls.clone();
        let running = tokio::spawn(async move { run.run(Some(&store)).await });
        Replica { controls, running }
    }

    /// Blocks a user. Returns the control's id, and whether it is shared.
    async fn block(&self, user: &str) -> (String, bool) {
        let entries = format!(r#"[{{"key":"user","value":"{user}"}}]"#);
        let body = format!(r#"{{"domain":"d","entries":{entries},"action":"block"}}"#);
        let draft = Draft::read(body.as_bytes()).unwrap();
        let written = self.controls.put(None, draft, PutOptions::default()).await.unwrap();
        (written.control.id, written.shared)
    }

    fn has(&self, id: &str) -> bool {
        self.controls.get(id).is_some()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.running.abort();
    }
}

#[test]
fn replicas_share_controls_also_after_an_outage() {
    let mut server = Server::start();
    runtime().block_on(async {
        let (a, b) = (Replica::start(single(&server)).await, Replica::start(single(&server)).await);
        let (ann, shared) = a.block("ann").await;
        assert!(shared);
        until("the block at the other replica", async || b.has(&ann)).await;
        server.kill();
        until("the outage", async || b.controls.share_error().is_some()).await;
        let (bob, shared) = a.block("bob").await;
        assert!(!shared && a.has(&ann) && a.has(&bob) && b.has(&ann));
        assert!(!b.controls.delete(&ann).await.unwrap().shared);
        // It comes back without its data.
        server.restart();
        until("both changes at both", async || {
            !a.has(&ann) && !b.has(&ann) && a.has(&bob) && b.has(&bob)
        })
        .await;
        let (cid, shared) = b.block("cid").await;
        assert!(shared);
        until("another block", async || a.has(&cid)).await;
    });
}
