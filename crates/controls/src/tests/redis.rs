//! Controls that replicas share in Redis.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::servers::{Server, until};
use crate::{Controls, ControlsOptions, Draft, PutOptions};
use weir_redis::{Endpoint, RedisOptions as StoreOptions, RedisStore, Topology};

/// Returns options with long timeouts: test machines may be busy.
fn store_options(server: &Server) -> StoreOptions {
    let endpoint = Endpoint::Tcp("127.0.0.1".into(), server.port());
    let mut options = StoreOptions::new(Topology::Single(endpoint));
    options.access.timeout = Duration::from_secs(10);
    options.slow_after = Duration::from_secs(10);
    options
}

/// A replica with controls, on a store of its own.
struct Replica {
    controls: Arc<Controls>,
    running: tokio::task::JoinHandle<()>,
}

impl Replica {
    async fn start(server: &Server) -> Replica {
        let store = RedisStore::new(store_options(server));
        store.answered().await;
        let options = ControlsOptions { is_shared: true, ..ControlsOptions::default() };
        let controls = Arc::new(Controls::new(Arc::default(), options, || {}));
        let run = controls.clone();
        let running = tokio::spawn(async move { run.run(Some(&store)).await });
        Replica { controls, running }
    }

    /// Blocks a user. Returns the control's id, and whether it is shared.
    async fn block(&self, user: &str) -> (String, bool) {
        let entries = format!(r#"[{{"key":"user","value":"{user}"}}]"#);
        let body = format!(r#"{{"domain":"d","entries":{entries},"action":"block"}}"#);
        let draft = Draft::read(body.as_bytes(), None).unwrap();
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

#[tokio::test]
async fn replicas_share_controls_also_after_an_outage() {
    let mut server = Server::start();
    let (a, b) = (Replica::start(&server).await, Replica::start(&server).await);
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
}

#[tokio::test]
async fn many_changes_at_two_replicas_are_all_shared_after_a_pause_of_redis() {
    let server = Server::start();
    let (a, b) = (Replica::start(&server).await, Replica::start(&server).await);
    let (first, _) = a.block("first").await;
    until("the block at the other replica", async || b.has(&first)).await;
    server.stop();
    let names: Vec<_> = (0..300).map(|i| [format!("a{i}"), format!("b{i}")]).collect();
    let blocks = names.iter().flat_map(|[of_a, of_b]| [a.block(of_a), b.block(of_b)]);
    let pause = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.go_on();
    };
    tokio::join!(join_all(blocks), pause);
    until("all changes at both", async || {
        [&a, &b].iter().all(|replica| replica.controls.list().len() == 601)
    })
    .await;
    assert_eq!([&a, &b].map(|replica| replica.controls.table_losses()), [0, 0]);
}
