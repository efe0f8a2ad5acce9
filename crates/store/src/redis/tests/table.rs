//! The table that all replicas share.

use super::servers::Server;
use super::*;
use crate::{RowChange, SharedTable};

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
        let ours = weir_common::clock::Clock::now(&now);
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
