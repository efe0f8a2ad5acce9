//! Sentinels, clusters that change, sockets, users, TLS.

use super::servers::cluster::Cluster;
use super::servers::sentinel::{MASTER, Sentinels};
use super::servers::{Config, Server};
use super::*;

#[test]
fn follows_a_failover_reported_by_sentinels() {
    let mut group = Sentinels::start();
    runtime().block_on(async {
        let mut sentinels = endpoints(&group.addresses());
        // A sentinel that is down is skipped.
        sentinels.insert(0, Endpoint::Tcp("127.0.0.1".into(), servers::free_port()));
        let store =
            connected(options(Topology::Sentinel { master: MASTER.into(), sentinels })).await;
        let plan = plan(100, Unit::Day);
        assert_eq!(try_take(&store, "a", &plan).await.unwrap().used_before, 0);
        let copied = || group.replica.command(&["DBSIZE"]).int() == 1;
        until("the replica to have it", async || copied()).await;
        group.master.kill();
        let group = &group;
        tokio::task::spawn_blocking({
            let sentinels = group.sentinels.iter().map(Server::port).collect::<Vec<_>>();
            let replica = i64::from(group.replica.port());
            move || {
                for port in sentinels {
                    servers::wait_for("a failover", || {
                        let mut client = servers::Client::connect(port).ok()?;
                        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
                        let master = client.send(&words).ok()?;
                        (master.list()[1].int() == replica).then_some(())
                    });
                }
            }
        })
        .await
        .unwrap();
        until("the store to follow", async || try_take(&store, "a", &plan).await.is_ok()).await;
        let decision = try_take(&store, "a", &plan).await.unwrap();
        assert!(decision.used_before >= 2, "{decision:?}");
    });
}

/// A sentinel that is out of date names a replica: the next one is asked.
#[test]
fn skips_sentinels_that_name_no_master() {
    let master = Server::start();
    let replica = Server::configured(&[&format!("replicaof 127.0.0.1 {}", master.port())]);
    let gone = servers::free_port();
    let sentinel = |port: u16| {
        Server::with(Config {
            sentinel: true,
            // The quorum keeps it from failing over.
            lines: vec![
                format!("sentinel monitor {MASTER} 127.0.0.1 {port} 9"),
                format!("sentinel down-after-milliseconds {MASTER} 600000"),
            ],
            ..Config::default()
        })
    };
    let sentinels = [gone, replica.port(), master.port()].map(sentinel);
    servers::wait_for("the replica to know that it is one", || {
        let info = replica.command(&["INFO", "replication"]).text();
        info.contains("master_link_status:up").then_some(())
    });
    runtime().block_on(async {
        let addresses: Vec<String> = sentinels.iter().map(Server::addr).collect();
        let sentinels = endpoints(&addresses);
        let store =
            RedisStore::new(options(Topology::Sentinel { master: MASTER.into(), sentinels }));
        let answered = tokio::time::timeout(Duration::from_secs(5), store.answered()).await;
        assert!(answered.is_ok(), "the last one knows the master");
        assert!(try_take(&store, "a", &plan(100, Unit::Day)).await.is_ok());
        assert_eq!(master.command(&["DBSIZE"]).int(), 1);
    });
}

#[test]
fn leaves_a_master_that_became_a_replica() {
    let server = Server::start();
    let other = Server::start();
    runtime().block_on(async {
        let store = connected(options(single(&server))).await;
        let plan = plan(100, Unit::Day);
        assert!(try_take(&store, "a", &plan).await.is_ok());
        server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
        assert_eq!(try_take(&store, "a", &plan).await, Err(StoreError::ReadOnly));
        assert_eq!(try_take(&store, "a", &plan).await, Err(StoreError::ReadOnly));
        server.command(&["REPLICAOF", "NO", "ONE"]);
        until("it to be used again", async || try_take(&store, "a", &plan).await.is_ok()).await;
    });
}

/// Returns one key value, with its slot, for each master of a cluster.
pub(super) fn values(cluster: &Cluster, plan: &Plan) -> Vec<(String, u16)> {
    let mut values: Vec<Option<(String, u16)>> = vec![None; cluster.masters.len()];
    for i in 0.. {
        let value = format!("v{i}");
        let entries = [("key", value.as_str())];
        let key =
            weir_store::key_bytes("weir:", &Key { domain: "test", entries: &entries }, plan, false);
        let slot = key::slot(&key);
        values[cluster.master_of(slot)].get_or_insert((value, slot));
        if values.iter().all(Option::is_some) {
            break;
        }
    }
    values.into_iter().flatten().collect()
}

#[test]
fn follows_a_moving_slot_without_a_failed_request() {
    let cluster = Cluster::start(3, 0);
    runtime().block_on(async {
        let seeds = endpoints(&cluster.addresses()[..1]);
        let store = RedisStore::new(options(Topology::Cluster(seeds)));
        let plan = plan(100, Unit::Day);
        let (value, slot) = values(&cluster, &plan)[0].clone();
        until("the store to be up", async || try_take(&store, &value, &plan).await.is_ok()).await;
        let used = async || try_take(&store, &value, &plan).await.unwrap().used_before;
        let start = used().await;
        cluster.begin_to_move(slot, 1);
        assert_eq!(used().await, start + 1);
        cluster.move_keys(slot, 1);
        // The old node redirects to the new one.
        assert_eq!(used().await, start + 2);
        assert_eq!(used().await, start + 3);
        cluster.end_the_move(slot, 1);
        assert_eq!(used().await, start + 4);
        assert_eq!(used().await, start + 5);
    });
}

#[test]
fn a_failed_node_fails_only_its_own_keys_until_its_replica_takes_over() {
    let mut cluster = Cluster::start(3, 1);
    runtime().block_on(async {
        let topology = Topology::Cluster(endpoints(&cluster.addresses()));
        let store = RedisStore::new(RedisOptions {
            slow_after: Duration::from_secs(1),
            ..options(topology)
        });
        let plan = plan(1_000, Unit::Day);
        let values = values(&cluster, &plan);
        for (value, _) in &values {
            until("the store to be up", async || try_take(&store, value, &plan).await.is_ok())
                .await;
        }
        cluster.masters[0].kill();
        until("its keys to fail", async || try_take(&store, &values[0].0, &plan).await.is_err())
            .await;
        for (value, _) in &values[1..] {
            assert!(try_take(&store, value, &plan).await.is_ok());
        }
        until("its replica to take over", async || {
            try_take(&store, &values[0].0, &plan).await.is_ok()
        })
        .await;
    });
}

#[test]
fn connects_by_unix_socket() {
    let server = Server::start();
    runtime().block_on(async {
        let store = RedisStore::new(options(Topology::Single(Endpoint::Unix(server.socket()))));
        store.answered().await;
        assert!(try_take(&store, "a", &plan(1, Unit::Day)).await.is_ok());
    });
}

#[test]
fn logs_in_and_rereads_the_password_file() {
    let server = Server::with(Config {
        lines: vec![
            "user default on >root ~* &* +@all".into(),
            // The least that a user needs.
            "user weir on >first ~weir:* +evalsha +eval +ping +info +time +incrby +decrby +get +set"
                .into(),
        ],
        password: Some("root".into()),
        ..Config::default()
    });
    let file = server.directory().join("password");
    std::fs::write(&file, "wrong\n").unwrap();
    let mut options = options(single(&server));
    options.access.login = Login {
        username: Some("weir".into()),
        password: None,
        password_file: Some(PasswordFile::new(file.clone())),
    };
    runtime().block_on(async {
        let store = RedisStore::new(options);
        let plan = plan(100, Unit::Day);
        assert_eq!(try_take(&store, "a", &plan).await, Err(StoreError::Unavailable));
        std::fs::write(&file, "first\n").unwrap();
        store.answered().await;
        assert!(try_take(&store, "a", &plan).await.is_ok());
        server.command(&["ACL", "SETUSER", "weir", ">second", "<first"]);
        std::fs::write(&file, "second\n").unwrap();
        server.command(&["CLIENT", "KILL", "USER", "weir"]);
        until("it to log in again", async || try_take(&store, "a", &plan).await.is_ok()).await;
    });
}

#[test]
fn databases_are_separate() {
    let server = Server::start();
    runtime().block_on(async {
        let mut second = options(single(&server));
        second.access.db = 2;
        let (first, second) = (RedisStore::new(options(single(&server))), RedisStore::new(second));
        first.answered().await;
        second.answered().await;
        let plan = plan(1, Unit::Day);
        assert!(try_take(&first, "a", &plan).await.unwrap().allowed);
        assert!(try_take(&second, "a", &plan).await.unwrap().allowed);
        assert!(!try_take(&second, "a", &plan).await.unwrap().allowed);
    });
}

/// Starts a server that answers commands by their first word, and closes the connection where there is no reply. Returns
/// why it is refused.
fn refused(reply_to: fn(&[String]) -> Option<&'static str>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut client = servers::Client::serve(stream);
        while let Ok(words) = client.command() {
            match reply_to(&words) {
                Some(reply) if client.reply(reply).is_ok() => {}
                _ => break,
            }
        }
    });
    runtime().block_on(async {
        let options = options(local(port));
        let Topology::Single(endpoint) = &options.topology else { unreachable!() };
        let mut connection = handshake::connect(&options.access, endpoint).await.unwrap();
        examine::examine(&mut connection, false, "weir:").await.unwrap_err().to_string()
    })
}

/// The server reports an old version, and nothing else.
#[test]
fn refuses_a_server_that_is_too_old() {
    let too_old = refused(|words| {
        Some(if words[0] == "INFO" { "$22\r\nredis_version:5.0.14\r\n\r\n" } else { "+OK\r\n" })
    });
    assert_eq!(too_old, "redis 5.0.14 is too old: weir needs 6.0 or later");
}

/// Fakes in tests of other programs answer `CLUSTER SLOTS`, or close the connection at `INFO`.
#[test]
fn refuses_a_server_with_other_scripts_for_what_they_are() {
    let no_struct = "this server's Lua lacks struct: weir needs Redis 6.0 or later, or Valkey";
    let fake = refused(|words| {
        Some(match &*words[0] {
            "EVAL" => ":0\r\n",
            "CLUSTER" => "*0\r\n",
            _ => "+OK\r\n",
        })
    });
    assert_eq!(fake, no_struct);
    let closing = refused(|words| Some(":0\r\n").filter(|_| words[0] == "EVAL"));
    assert_eq!(closing, no_struct);
    let none = refused(|words| {
        Some(if words[0] == "CLUSTER" || words[0] == "EVAL" {
            "-ERR unknown command\r\n"
        } else {
            "+OK\r\n"
        })
    });
    assert!(none.starts_with("the server runs no scripts (ERR unknown command): "), "{none}");
    // What was seen, and not what it may be.
    let at_info = refused(|words| Some(":1\r\n").filter(|_| words[0] == "EVAL"));
    assert!(
        at_info.starts_with("the server closed the connection at CLIENT, INFO or TIME ("),
        "{at_info}"
    );
    let at_eval = refused(|_| None);
    assert!(at_eval.starts_with("the server closed the connection at EVAL ("), "{at_eval}");
}

#[test]
fn names_the_setting_of_a_server_without_time() {
    let server = Server::configured(&["rename-command TIME \"\""]);
    runtime().block_on(async {
        let context = |clock| RedisContext::new(RedisOptions { clock, ..options(single(&server)) });
        let target = Target::Server(Endpoint::Tcp("127.0.0.1".into(), server.port()));
        let error = target.connect(&context(ClockSource::Server)).await.unwrap_err().to_string();
        assert!(error.contains("has no command TIME (ERR unknown command"), "{error}");
        assert!(error.contains("store.redis.clock = \"caller\""), "{error}");
        assert!(target.connect(&context(ClockSource::Caller)).await.is_ok());
        let store =
            connected(RedisOptions { clock: ClockSource::Caller, ..options(single(&server)) })
                .await;
        assert!(try_take(&store, "a", &plan(1, Unit::Day)).await.is_ok());
    });
}
