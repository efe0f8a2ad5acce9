//! Processes that are killed between reserving and settling: nothing is returned twice.

use std::time::{Duration, Instant};

use super::*;
use crate::support::redis::sentinel::{MASTER, Sentinels};
use crate::support::{PATIENCE, wait_for};

/// The calls that reserve 100 hits each, and use ten more with each number.
const CALLS: u32 = 8;

async fn reserve_all(client: &mut Client) {
    for id in 0..CALLS {
        let reserved = client.reserve(&["user"], &id.to_string(), 100).await.unwrap();
        assert_eq!((reserved.0, reserved.1[0].1), (Code::Ok, 100));
    }
}

fn used(id: u32) -> u32 {
    id * 10
}

/// Settles all, one after the other, until each is answered. Returns the results.
async fn settle_all(client: &mut Client) -> Vec<Settled> {
    let mut results = Vec::new();
    for id in 0..CALLS {
        let end = Instant::now() + PATIENCE;
        results.push(loop {
            match client.end(&["user"], &id.to_string(), Some(used(id).into())).await {
                Ok((result, ..)) => break result,
                Err(code) => assert_eq!(code, Status::Unavailable),
            }
            assert!(Instant::now() < end, "{id} is not settled");
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
    }
    results
}

/// The seconds since counters were saved on disk, if they are there.
fn sync_age(weir: &Weir) -> Option<f64> {
    let text = http::get(weir.http, "/metrics").body;
    text.lines().find_map(|line| line.strip_prefix("weir_disk_sync_age_seconds ")?.parse().ok())
}

#[tokio::test]
async fn what_is_reserved_outlives_a_weir_that_is_killed() {
    let redis = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let disk = || {
        service()
            .env("WEIR__STORE__KIND", "disk")
            .env("WEIR__STORE__DISK__PATH", directory.path())
            .env("WEIR__STORE__DISK__SYNC", "10ms")
    };
    for setup in [&disk as &dyn Fn() -> Setup, &|| with_redis(redis.port())] {
        let mut weir = setup().start();
        reserve_all(&mut Client::Http(weir.http)).await;
        let reserved = Instant::now();
        wait_for("all is saved", || {
            // In Redis it is.
            let age = sync_age(&weir).unwrap_or_default();
            (age < reserved.elapsed().as_secs_f64()).then_some(())
        });
        weir.kill();
        let weir = setup().start();
        let mut client = Client::Http(weir.http);
        assert_eq!(client.left("user").await, 10_000 - 100 * CALLS);
        assert_eq!(settle_all(&mut client).await, [Settled::Settled; CALLS as usize]);
        let left = 10_000 - (0..CALLS).map(used).sum::<u32>();
        assert_eq!(client.left("user").await, left);
        assert_eq!(settle_all(&mut client).await, [Settled::Unknown; CALLS as usize]);
        assert_eq!(client.left("user").await, left);
    }
}

#[tokio::test]
async fn what_is_reserved_outlives_a_master_that_is_killed() {
    let mut group = Sentinels::start();
    let weir = service()
        .env("WEIR__STORE__REDIS__TOPOLOGY", "sentinel")
        .env("WEIR__STORE__REDIS__URL", group.addresses().join(","))
        .env("WEIR__STORE__REDIS__SENTINEL__MASTER_NAME", MASTER)
        .start();
    let mut client = Client::Http(weir.http);
    reserve_all(&mut client).await;
    wait_until("the replica has them", async || {
        group.replica.command(&["KEYS", "*:r:*"]).list().len() == CALLS as usize
    })
    .await;
    group.master.kill();
    // From before the failover on: calls without an answer are repeated.
    let results = settle_all(&mut client).await;
    println!("{results:?}");
    assert!(results.contains(&Settled::Settled));
    let left = 10_000 - (0..CALLS).map(used).sum::<u32>();
    assert_eq!(client.left("user").await, left);
    assert_eq!(settle_all(&mut client).await, [Settled::Unknown; CALLS as usize]);
    assert_eq!(client.left("user").await, left);
}
