//! The texts that replicas write to Redis and read of each other.

use super::permissions::{documented_user, with_login};
use super::servers::Server;
use super::servers::cluster::Cluster;
use super::*;
use weir_store::SharedTable;
use weir_store::shared::{MAX_TEXT_BYTES, ReplicaTextError, ReplicaTexts};

const SECRET: &str = "0123";

async fn others(store: &RedisStore) -> Vec<String> {
    let mut texts = store.others().await.unwrap();
    texts.sort();
    texts
}

#[test]
fn texts_are_read_by_others_until_they_expire() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(DAWN));
    runtime().block_on(async {
        let stores = [(); 3].map(|()| manual(single(&server), &clock));
        for store in &stores {
            store.answered().await;
        }
        let [a, b, c] = &stores;
        assert!(others(a).await.is_empty());
        assert_eq!(a.publish(SECRET, "of a").await.as_deref(), Ok(SECRET));
        let large = "b".repeat(MAX_TEXT_BYTES);
        assert_eq!(b.publish(SECRET, &large).await.as_deref(), Ok(SECRET));
        // Made with another secret: it is not written.
        assert_eq!(c.publish("4567", "of c").await.as_deref(), Ok(SECRET));
        assert_eq!(
            (others(a).await, others(b).await),
            (vec![large.clone()], vec!["of a".to_owned()])
        );
        assert_eq!(others(c).await, [large, "of a".to_owned()]);
        let key = format!("weir:{{top}}{}", a.replica_id);
        for key in [key.as_str(), "weir:{top}"] {
            let expires = server.command(&["PTTL", key]).int();
            assert!((1..=10_000).contains(&expires), "{key}: {expires}");
        }
        // One that ended: the next new one removes its id.
        server.command(&["DEL", &key]);
        assert!(others(b).await.is_empty());
        clock.advance(10 * SECOND);
        assert_eq!(c.publish(SECRET, "of c").await.as_deref(), Ok(SECRET));
        assert_eq!(server.command(&["HEXISTS", "weir:{top}", &a.replica_id]).int(), 0);
        // A Redis that has lost everything gets the secret of the first.
        server.command(&["FLUSHALL"]);
        assert_eq!(b.publish("89ab", "of b").await.as_deref(), Ok("89ab"));
    });
}

#[test]
fn what_another_program_writes_is_bounded() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        for id in ["x", "y", "z"] {
            server.command(&["HSET", "weir:{top}", id, "no time"]);
        }
        server.command(&["SET", "weir:{top}x", &"x".repeat(MAX_TEXT_BYTES + 1)]);
        server.command(&["SET", "weir:{top}y", "y"]);
        let texts = others(&store).await;
        assert_eq!((texts[0].len(), texts[1].as_str(), texts.len()), (MAX_TEXT_BYTES, "y", 2));
        server.command(&["LPUSH", "weir:{top}z", "a list"]);
        assert_eq!(others(&store).await.len(), 2);
        assert_eq!(store.publish(SECRET, "of this").await.as_deref(), Ok(SECRET));
        assert_eq!(server.command(&["HLEN", "weir:{top}"]).int(), 2, "itself, and the secret");
        assert!(others(&store).await.is_empty());
    });
}

#[test]
fn the_documented_permissions_are_enough_for_texts_and_without_them_they_are_refused() {
    let (server, login) = documented_user();
    runtime().block_on(async {
        let store = connected(with_login(&server, &login)).await;
        assert_eq!(store.publish(SECRET, "text").await.as_deref(), Ok(SECRET));
        assert!(others(&store).await.is_empty());
        assert!(SharedTable::version(&store).await.is_ok());
        for missing in ["-eval", "-time", "-hset", "resetkeys"] {
            server.command(&["ACL", "SETUSER", "weir", "~weir:*", "+@all", missing]);
            let refused = store.publish(SECRET, "text").await;
            assert!(matches!(refused, Err(ReplicaTextError::Refused(_))), "{missing}: {refused:?}");
        }
    });
}

#[test]
fn a_redis_that_is_full_or_read_only_is_asked_again() {
    let server = Server::configured(&["maxmemory-policy noeviction"]);
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let unavailable = Err(StoreError::Unavailable.into());
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(store.publish(SECRET, "text").await, unavailable);
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(store.publish(SECRET, "text").await.as_deref(), Ok(SECRET));
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        assert_eq!(store.publish(SECRET, "text").await, unavailable);
        server.command(&["REPLICAOF", "NO", "ONE"]);
        until("it to be written", async || store.publish(SECRET, "text").await.is_ok()).await;
    });
}

#[test]
fn texts_of_a_cluster_are_on_one_node() {
    let cluster = Cluster::start(3, 0);
    runtime().block_on(async {
        let topology = || Topology::Cluster(endpoints(&cluster.addresses()[..1]));
        let (a, b) = (connected(options(topology())).await, connected(options(topology())).await);
        until("the first is written", async || a.publish(SECRET, "of a").await.is_ok()).await;
        until("the second is written", async || b.publish(SECRET, "of b").await.is_ok()).await;
        assert_eq!(
            (others(&a).await, others(&b).await),
            (vec!["of b".into()], vec!["of a".into()])
        );
    });
}
