//! Replicas that announce themselves in Redis and count each other.

use super::servers::cluster::Cluster;
use super::servers::{Config, Server};
use super::*;
use crate::guard::Guard;
use crate::replicas::{ANNOUNCED_FOR, AnnounceError, Announced, ReplicaCount, ReplicaRegister};
use crate::{OnStoreFailure, Operations, SharedTable};

type Replica = Guard<RedisStore, Arc<SystemClock>>;

/// The limit of one window.
const N: u64 = 100;

async fn count(store: &RedisStore) -> u32 {
    store.announce().await.unwrap().replicas
}

async fn replica(options: Options) -> Replica {
    let clock = Arc::new(SystemClock::new());
    let guard = Guard::new(connected(options).await, clock, OnStoreFailure::Local, 1, 1_000);
    guard.counting_replicas()
}

/// Announces each replica as often as it takes a count to reach all.
async fn announce_all(replicas: &[Replica]) {
    for replica in replicas.iter().chain(replicas) {
        replica.replica_count().announce(replica.inner()).await.unwrap();
    }
}

/// The commands of the user of docs/redis.md.
pub(super) fn documented_commands() -> String {
    let page = include_str!("../../../../../docs/redis.md");
    let lines = page.lines().map(str::trim).filter(|line| line.starts_with('+'));
    let commands: String = lines.map(|line| line.trim_end_matches('\\')).collect();
    assert!(commands.contains("+eval ") && commands.contains("+hset "), "{commands}");
    commands
}

/// The user of docs/redis.md.
pub(super) fn documented_user() -> (Server, Login) {
    user_with(&documented_commands())
}

/// A server with a user that has these permissions.
fn user_with(commands: &str) -> (Server, Login) {
    let server = Server::with(Config {
        lines: vec![
            "user default on >root ~* &* +@all".into(),
            format!("user weir on >secret ~weir:* {commands}"),
        ],
        password: Some("root".into()),
        ..Config::default()
    });
    let [username, password] = ["weir", "secret"].map(|text| Some(text.to_owned()));
    (server, Login { username, password, password_file: None })
}

pub(super) fn with_login(server: &Server, login: &Login) -> Options {
    let mut options = options(single(server));
    options.access.login = login.clone();
    options
}

/// Ten replicas of which two were there first: without counting, each would allow half of the limit, or all.
#[test]
fn ten_replicas_scaled_from_two_together_admit_one_limit_without_redis() {
    let (mut server, login) = documented_user();
    runtime().block_on(async {
        let mut replicas = Vec::new();
        for wanted in [2, 10] {
            while replicas.len() < wanted {
                replicas.push(replica(with_login(&server, &login)).await);
            }
            announce_all(&replicas).await;
            let counted = replicas.iter().map(|it| u64::from(it.replica_count().get()));
            assert!(counted.eq(vec![wanted as u64; wanted]));
        }
        server.kill();
        let plan = plan(N as u32, Unit::Year);
        let mut admitted = 0;
        for replica in &replicas {
            until("the replica to notice", async || {
                let look = take(replica, "d", "other", &plan, 0).await;
                look.source == weir_limit::Source::Degraded
            })
            .await;
            for _ in 0..N {
                admitted += u64::from(take(replica, "d", "a", &plan, 1).await.allowed);
            }
        }
        assert_eq!(admitted, N);
    });
}

#[test]
fn replicas_are_counted_until_they_leave_or_their_announcement_expires() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(DAWN));
    let second = Duration::from_secs(1);
    runtime().block_on(async {
        let stores = [(); 3].map(|()| manual(single(&server), &clock));
        for store in &stores {
            store.answered().await;
        }
        let [a, b, c] = &stores;
        assert_eq!(a.announce().await, Ok(Announced { replicas: 1, register_age: Duration::ZERO }));
        assert_eq!((count(b).await, count(c).await, count(a).await), (2, 3, 3));
        clock.advance(SECOND);
        assert_eq!(a.announce().await, Ok(Announced { replicas: 3, register_age: second }));
        // At the end of a process.
        ReplicaRegister::withdraw(c).await;
        assert_eq!((count(a).await, count(b).await), (2, 2));
        // One that ends without it.
        clock.advance(ANNOUNCED_FOR.as_micros() as Micros - 1);
        assert_eq!(count(a).await, 2, "b still counts");
        clock.advance(SECOND);
        assert_eq!(count(a).await, 1);
        assert_eq!(server.command(&["HEXISTS", "weir:{replicas}", &b.replica_id]).int(), 0);
        let expires = server.command(&["PTTL", "weir:{replicas}"]).int();
        assert!((1..=10_000).contains(&expires), "nothing stays without replicas: {expires}");
        server.command(&["FLUSHALL"]);
        assert_eq!(b.announce().await, Ok(Announced { replicas: 1, register_age: Duration::ZERO }));
    });
}

#[test]
fn many_replicas_are_counted_and_dropped() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(DAWN));
    runtime().block_on(async {
        let store = manual(single(&server), &clock);
        store.answered().await;
        for (first, expires) in [(0, DAWN), (1_000, DAWN + 2 * SECOND)] {
            let fields = (first..first + 1_000).flat_map(|i| [i.to_string(), expires.to_string()]);
            let words: Vec<String> =
                ["HSET", "weir:{replicas}"].map(String::from).into_iter().chain(fields).collect();
            server.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        assert_eq!(count(&store).await, 1_001);
        clock.advance(10 * SECOND);
        assert_eq!(count(&store).await, 1);
        // Itself, and what is known about the hash.
        assert_eq!(server.command(&["HLEN", "weir:{replicas}"]).int(), 3);
    });
}

#[test]
fn an_announcement_is_one_command() {
    let server = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let sent = || {
            let stats = server.command(&["INFO", "commandstats"]).text();
            let calls =
                |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
            // Those within the script, those of this test, and checks of an idle connection.
            let others = ["hset", "hget", "hscan", "hdel", "pexpire", "time", "info", "ping"];
            let is_other = |line: &str| {
                others.iter().any(|name| line.starts_with(&format!("cmdstat_{name}:")))
            };
            stats.lines().filter(|line| !is_other(line)).filter_map(calls).sum::<u64>()
        };
        let before = sent();
        for _ in 0..5 {
            count(&store).await;
        }
        assert_eq!(sent() - before, 5);
    });
}

#[test]
fn the_documented_permissions_are_enough_and_without_them_it_is_refused() {
    let (server, login) = documented_user();
    runtime().block_on(async {
        let store = connected(with_login(&server, &login)).await;
        assert_eq!(count(&store).await, 1);
        assert!(SharedTable::version(&store).await.is_ok());
        ReplicaRegister::withdraw(&store).await;
        assert_eq!(server.command(&["HEXISTS", "weir:{replicas}", &store.replica_id]).int(), 0);
        for missing in ["-hscan", "-eval", "-time", "resetkeys"] {
            server.command(&["ACL", "SETUSER", "weir", "~weir:*", "+@all", missing]);
            let refused = store.announce().await;
            let is_refused = matches!(refused, Err(AnnounceError::Refused(_)));
            assert!(is_refused, "{missing}: {refused:?}");
        }
        server.command(&["ACL", "SETUSER", "weir", "~weir:*", "+@all"]);
        assert_eq!(count(&store).await, 1);
        server.command(&["DEL", "weir:{replicas}"]);
        server.command(&["SET", "weir:{replicas}", "of another program"]);
        let refused = store.announce().await;
        assert!(matches!(refused, Err(AnnounceError::Refused(_))), "{refused:?}");
        assert_eq!(server.command(&["GET", "weir:{replicas}"]).text(), "of another program");
    });
}

#[test]
fn a_redis_that_is_full_or_read_only_is_asked_again() {
    let server = Server::configured(&["maxmemory-policy noeviction"]);
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(store.announce().await, Err(StoreError::Unavailable.into()));
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(count(&store).await, 1);
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        assert_eq!(store.announce().await, Err(StoreError::Unavailable.into()));
        server.command(&["REPLICAOF", "NO", "ONE"]);
        until("it to be counted", async || store.announce().await.is_ok()).await;
    });
}

#[test]
fn the_number_outlasts_a_redis_that_restarts_without_its_data() {
    let mut server = Server::start();
    runtime().block_on(async {
        let replicas =
            [replica(options(single(&server))).await, replica(options(single(&server))).await];
        announce_all(&replicas).await;
        server.kill();
        let [first, _] = &replicas;
        let announce = async || first.replica_count().announce(first.inner()).await;
        until("it to be away", async || announce().await.is_err()).await;
        server.restart();
        until("it to be back", async || announce().await.is_ok()).await;
        assert_eq!(server.command(&["HLEN", "weir:{replicas}"]).int(), 3, "one is back");
        assert_eq!(first.replica_count().get(), 2);
    });
}

/// Through the trait that the program uses, which runs until it is dropped.
#[test]
fn counting_is_a_part_of_maintenance_and_of_nothing_else() {
    let server = Server::start();
    runtime().block_on(async {
        let other = connected(options(single(&server))).await;
        count(&other).await;
        let clock = Arc::new(SystemClock::new());
        let store = connected(options(single(&server))).await;
        let fixed = Guard::new(store, clock, OnStoreFailure::Local, 7, 1_000);
        let counting = replica(options(single(&server))).await;
        let counted = async {
            until("the replicas are counted", async || counting.replica_count().get() == 2).await;
        };
        tokio::select! {
            () = counted => {}
            () = counting.maintain() => {}
            () = fixed.maintain() => {}
        }
        assert_eq!(fixed.replica_count().get(), 7);
        fixed.withdraw().await;
        counting.withdraw().await;
        assert_eq!(count(&other).await, 1);
    });
}

#[test]
fn replicas_of_a_cluster_are_counted_on_one_node() {
    let mut cluster = Cluster::start(3, 0);
    runtime().block_on(async {
        let topology = || Topology::Cluster(endpoints(&cluster.addresses()[..1]));
        let (a, b) = (connected(options(topology())).await, connected(options(topology())).await);
        until("the first is counted", async || a.announce().await.is_ok()).await;
        until("the second is counted", async || b.announce().await.is_ok()).await;
        assert_eq!((count(&a).await, count(&b).await), (2, 2));
        let number = ReplicaCount::new(1).following();
        number.announce(&a).await.unwrap();
        ReplicaRegister::withdraw(&b).await;
        assert_eq!(count(&a).await, 1, "{number:?}");
        let slot = a_slot(&cluster);
        let node = cluster.master_of(slot);
        cluster.masters[node].kill();
        until("the node to be away", async || number.announce(&a).await.is_err()).await;
        assert_eq!(number.get(), 2);
    });
}

fn a_slot(cluster: &Cluster) -> u16 {
    let slot = cluster.masters[0].command(&["CLUSTER", "KEYSLOT", "weir:{replicas}"]).int();
    u16::try_from(slot).unwrap()
}
