//! The table that all replicas share.

use super::servers::Server;
use super::*;
use weir_store::{RowChange, SharedTable, conformance};

fn row(name: &str, at: Micros, text: &str) -> RowChange {
    RowChange { name: name.into(), at, is_new: false, text: Some(text.into()) }
}

#[test]
fn a_table_conforms() {
    let server = Server::start();
    runtime().block_on(async {
        let a = connected(options(single(&server))).await;
        let b = connected(options(single(&server))).await;
        let now = weir_common::clock::Clock::now(&SystemClock::new());
        conformance::table::conforms(&a, &b, now).await;
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
        let names: Vec<_> = store.rows().await.unwrap().into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["y"]);
    });
}
