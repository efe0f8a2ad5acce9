//! States that are read and reset, on servers that fail, move keys and hold foreign values.

use super::permissions::{documented_user, with_login};
use super::servers::Server;
use super::servers::cluster::Cluster;
use super::topologies::values;
use super::*;
use crate::codec::PlanCodec;
use weir_limit::KeyState;
use weir_store::conformance::holds::concurrency;
use weir_store::conformance::states::plans;
use weir_store::conformance::{try_read, try_reset};
use weir_store::shared::ReplicaTexts;
use weir_store::{RowChange, SharedTable, StateKey, States};

const DOMAIN: &str = "test";

/// Returns how much of the first limit is used.
fn used(read: Result<KeyState, StoreError>) -> Result<u64, StoreError> {
    read.map(|state| state.limits[0].used)
}

/// Reads and resets a key within a short timeout.
async fn outcomes(store: &RedisStore, plan: &Arc<Plan>) -> [Result<(), StoreError>; 2] {
    let key = Key { domain: DOMAIN, entries: &[("key", "a")] };
    let state_key = StateKey { key, plan, together: false, id: None };
    let timeout = Duration::from_millis(300);
    let read = store.read(state_key, &[], timeout).await.map(drop);
    [read, store.reset(state_key, timeout).await]
}

#[test]
fn reading_leaves_values_and_expiries_as_they_are() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let stored = || {
            let keys = server.command(&["KEYS", "*"]);
            let mut keys: Vec<String> = keys.list().iter().map(servers::Reply::text).collect();
            keys.sort();
            let value = |key: String| {
                let expires = server.command(&["PEXPIRETIME", &key]).int();
                assert!(expires > 0, "{key}");
                let value = format!("{:?}", server.command(&["DUMP", &key]));
                (key, value, expires)
            };
            keys.into_iter().map(value).collect::<Vec<_>>()
        };
        for plan in plans() {
            server.command(&["FLUSHALL"]);
            let key = Key { domain: DOMAIN, entries: &[("key", "a")] };
            for charged in [false, true] {
                if charged {
                    let hold = plan.hold_id().map(|_| "id");
                    let (op, role) = (Op::Take(2), Role::Enforced);
                    charge(&store, &[Charge { key, plan: &plan, op, hold, role }], false).await;
                }
                let (before, trips) = (stored(), store.counts().trips.load(Ordering::Relaxed));
                try_read(&store, key, &plan, &[1, SECOND]).await.unwrap();
                assert_eq!(stored(), before, "{plan:?}");
                let after = store.counts().trips.load(Ordering::Relaxed);
                assert_eq!(after, trips, "not on the connection of requests");
            }
            try_reset(&store, key, &plan).await.unwrap();
            // Only when it was, where hits may have been reserved.
            let left = stored();
            assert_eq!(left.len(), usize::from(plan.can_reserve()), "{plan:?}");
            assert!(left.iter().all(|(key, ..)| key.ends_with(":reset")), "{left:?}");
        }
    });
}

#[test]
fn operators_and_replicas_share_one_connection_which_is_opened_again() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let key = Key { domain: DOMAIN, entries: &[("key", "a")] };
        let clients = || server.command(&["CLIENT", "LIST"]).text().lines().count();
        let (plan, before) = (plan(5, Unit::Day), clients());
        for _ in 0..3 {
            try_read(&store, key, &plan, &[]).await.unwrap();
            SharedTable::version(&store).await.unwrap();
            store.rows().await.unwrap();
            store.publish("0123", "text").await.unwrap();
        }
        assert_eq!(clients(), before + 1);
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        until("the version is read", async || SharedTable::version(&store).await.is_ok()).await;
        assert_eq!(used(try_read(&store, key, &plan, &[]).await), Ok(0));
    });
}

#[test]
fn a_state_goes_by_the_servers_clock() {
    let server = Server::start();
    runtime().block_on(async {
        // A caller's clock decades ahead changes nothing.
        let wall = Arc::new(ManualClock::new(4_000_000_000 * SECOND));
        let store = connected(RedisOptions { wall, ..options(single(&server)) }).await;
        let (minute, key) = (plan(5, Unit::Year), Key { domain: DOMAIN, entries: &[("key", "a")] });
        try_take(&store, "a", &minute).await.unwrap();
        let seconds = || server.command(&["TIME"]).list()[0].text().parse::<u64>().unwrap();
        let before = seconds();
        let read = try_read(&store, key, &minute, &[]).await.unwrap();
        assert!((before..=seconds()).contains(&(read.now / SECOND)));
        assert_eq!((read.limits[0].used, read.limits[0].remaining), (1, 4));
    });
}

#[test]
fn a_server_that_fails_is_an_error() {
    let mut server = Server::start();
    let other = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let plan = plan(5, Unit::Day);
        try_take(&store, "a", &plan).await.unwrap();
        server.stop();
        assert_eq!(outcomes(&store, &plan).await, [Err(StoreError::TimedOut); 2]);
        server.go_on();
        let replica_of = |words: [&str; 2]| server.command(&["REPLICAOF", words[0], words[1]]);
        replica_of(["127.0.0.1", &other.port().to_string()]);
        assert_eq!(outcomes(&store, &plan).await, [Err(StoreError::ReadOnly); 2]);
        replica_of(["NO", "ONE"]);
        assert_eq!(outcomes(&store, &plan).await, [Ok(()); 2]);
        server.kill();
        assert_eq!(outcomes(&store, &plan).await, [Err(StoreError::Unavailable); 2]);
        let nowhere = RedisStore::new(options(local(servers::free_port())));
        assert_eq!(outcomes(&nowhere, &plan).await, [Err(StoreError::Unavailable); 2]);
    });
}

#[test]
fn a_server_that_has_become_a_replica_is_noticed() {
    let (server, other) = (Server::start(), Server::start());
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let (plan, key) = (plan(5, Unit::Day), Key { domain: DOMAIN, entries: &[("key", "a")] });
        try_reset(&store, key, &plan).await.unwrap();
        server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
        assert_eq!(try_reset(&store, key, &plan).await, Err(StoreError::ReadOnly));
        let read = try_read(&store, key, &plan, &[]).await;
        assert_eq!(
            read.map(drop),
            Err(StoreError::ReadOnly),
            "a connection that is left would read"
        );
    });
}

#[test]
fn foreign_values_are_errors_until_they_are_reset() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let key = Key { domain: DOMAIN, entries: &[("key", "a")] };
        for plan in plans() {
            let own = String::from_utf8(weir_store::key_bytes("weir:", &key, &plan, false).into())
                .unwrap();
            // A plan of holds alone has no other key.
            let own = if PlanCodec(&plan).has_only_holds() { format!("{own}:holds") } else { own };
            // Another layout, too short, a log of another length, and a ring that is cut off.
            let foreign = ["no number", "\u{2}", "\u{1}", "-5", "9223372036854775807"];
            let log = format!("\u{1}\0\0\0\0\u{7f}\0\0\0\u{7f}\0\0\0{}", "\u{1}".repeat(20));
            for value in foreign.into_iter().chain([log.as_str()]) {
                server.command(&["SET", &own, value]);
                let read = try_read(&store, key, &plan, &[SECOND]).await;
                assert_eq!(read, Err(StoreError::Corrupt), "{value:?} {plan:?}");
                assert_eq!(server.command(&["GET", &own]).text(), value);
            }
            server.command(&["DEL", &own]);
            server.command(&["RPUSH", &own, "x"]);
            let read = try_read(&store, key, &plan, &[SECOND]).await;
            assert_eq!(read, Err(StoreError::WrongType), "{plan:?}");
            try_reset(&store, key, &plan).await.unwrap();
            assert_eq!(used(try_read(&store, key, &plan, &[]).await), Ok(0), "{plan:?}");
        }
    });
}

/// A log that was written around the end of its ring, and one whose `n` was lowered.
#[test]
fn a_long_log_is_read_whole() {
    let server = Server::start();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = manual(single(&server), &clock);
        store.answered().await;
        let log_of = |n| {
            let algorithm = weir_limit::SlidingLog { n, period: 60 * SECOND };
            let algorithm = weir_limit::Algorithm::SlidingLog(algorithm);
            let limit = Limit::fixed_window(n, Unit::Minute, 1).unwrap();
            Arc::new(Plan::new(vec![Limit { charge_denied: false, algorithm, ..limit }]))
        };
        let (long, short) = (log_of(30_000), log_of(1_000));
        for _ in 0..4 {
            assert!(take(&store, DOMAIN, "a", &long, 20_000).await.allowed);
            clock.advance(40 * SECOND);
            assert!(take(&store, DOMAIN, "a", &long, 10_000).await.allowed);
            let key = Key { domain: DOMAIN, entries: &[("key", "a")] };
            let spans = [SECOND, 40 * SECOND, 40 * SECOND + 1];
            for plan in [&long, &short] {
                let read = try_read(&store, key, plan, &spans).await.unwrap();
                assert_eq!((read.limits[0].used, read.log_len), (30_000, Some(30_000)));
                let counts = read.counts.iter().map(|count| count.as_ref().unwrap().count);
                assert_eq!(counts.collect::<Vec<_>>(), [10_000, 10_000, 30_000]);
            }
            clock.advance(60 * SECOND);
        }
    });
}

/// The user of docs/redis.md may read and reset states, and share controls.
#[test]
fn a_user_with_the_documented_permissions_is_enough() {
    let (server, login) = documented_user();
    let options = with_login(&server, &login);
    runtime().block_on(async {
        let store = connected(options).await;
        let key = Key { domain: DOMAIN, entries: &[("key", "a")] };
        for plan in plans() {
            try_read(&store, key, &plan, &[]).await.unwrap();
            try_reset(&store, key, &plan).await.unwrap();
        }
        let row =
            RowChange { name: "block".into(), at: 1, is_new: false, text: Some("text".into()) };
        store.write(&[row]).await.unwrap();
        let rows = store.rows().await.unwrap();
        assert_eq!((rows.len(), &*rows[0].name, &*rows[0].text), (1, "block", "text"));
    });
}

#[test]
fn follows_a_moving_slot() {
    let mut cluster = Cluster::start(3, 0);
    runtime().block_on(async {
        let seeds = endpoints(&cluster.addresses()[..1]);
        let store = RedisStore::new(options(Topology::Cluster(seeds)));
        let holds = concurrency(9, true);
        let (value, slot) = values(&cluster, &holds)[0].clone();
        let entries = [("key", value.as_str())];
        let key = Key { domain: DOMAIN, entries: &entries };
        // With two keys: one may have moved before the other.
        let held = [Arc::new(Plan::new(vec![
            holds.limits()[0].clone(),
            Limit::fixed_window(9, Unit::Day, 1).unwrap(),
        ]))];
        let take = Charge { hold: Some("1"), ..charge_of(&entries, &held[0], Op::Take(2)) };
        until("the store to be up", async || {
            charge_within(&store, take, Duration::from_secs(10)).await.is_ok()
        })
        .await;
        let read = async || used(try_read(&store, key, &held[0], &[]).await);
        assert_eq!(read().await, Ok(2));
        // The store does not know this node yet.
        cluster.add_empty_master();
        cluster.begin_to_move(slot, 3);
        assert_eq!(read().await, Ok(2));
        cluster.move_keys(slot, 3);
        assert_eq!(read().await, Ok(2), "the old node redirects to the new one");
        cluster.end_the_move(slot, 3);
        assert_eq!(read().await, Ok(2));
        cluster.begin_to_move(slot, 1);
        try_reset(&store, key, &held[0]).await.unwrap();
        cluster.end_the_move(slot, 1);
        assert_eq!(read().await, Ok(0));
    });
}
