//! Servers that refuse commands, whatever the key: each error keeps its kind, and none is logged as that of a key.

use std::io;
use std::num::NonZeroU32;

use parking_lot::Mutex;

use super::servers::{Client, Config, PATIENCE, wait_for};
use super::*;
use crate::refusal::store_error;
use weir_limit::*;

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone());
        tracing::subscriber::set_default(log.finish())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A plan of each algorithm alone, of it twice, and of it beside a window.
fn plans() -> Vec<Arc<Plan>> {
    let (n, period, strict) = (10, 60 * SECOND, false);
    let window = Limit::fixed_window(10, Unit::Minute, 1).unwrap();
    let month = Limit::fixed_window(10, Unit::Month, 1).unwrap();
    let bucket = TokenBucket { capacity: 5, amount: 1, interval: 10 * SECOND, strict, max_debt: 0 };
    let hold_id = Some("key".into());
    let algorithms = [
        window.algorithm.clone(),
        month.algorithm,
        Algorithm::SlidingWindow(SlidingWindow { n, period }),
        Algorithm::SlidingLog(SlidingLog { n, period }),
        Algorithm::BucketedWindow(BucketedWindow { n, period, buckets: 6 }),
        Algorithm::TokenBucket(bucket),
        Algorithm::Gcra(Gcra::new(10, period, 10, 0).unwrap()),
        Algorithm::Concurrency(Concurrency { n, timeout: period, hold_id: None }),
        Algorithm::Concurrency(Concurrency { n, timeout: period, hold_id }),
    ];
    let limits = algorithms.into_iter().map(|algorithm| {
        let charge_denied = matches!(algorithm, Algorithm::FixedWindow(_));
        Limit { algorithm, charge_denied, ..window.clone() }
    });
    let plan = |limits: &[&Limit]| Arc::new(Plan::new(limits.iter().map(|&l| l.clone()).collect()));
    limits
        .flat_map(|limit| {
            let mut plans = vec![plan(&[&limit]), plan(&[&limit, &window])];
            // A rule has one of these at most.
            if !matches!(limit.algorithm, Algorithm::Concurrency(_)) {
                plans.push(plan(&[&limit, &limit]));
            }
            plans
        })
        .collect()
}

/// Charges keys of a plan in all ways, whatever the answers.
async fn charge_all(store: &RedisStore, plan: &Arc<Plan>) -> Vec<Answer> {
    let values = ["a", "b", "c", "d"].map(|value| [("key", value)]);
    let take = |value: usize| Charge {
        hold: plan.hold_id().map(|_| "id"),
        ..charge_of(&values[value], plan, Op::Take(1))
    };
    let upto = UpTo { least: 1, most: 2, share: NonZeroU32::MIN };
    let mut batches = vec![vec![take(0)], vec![take(1), take(2)]];
    if plan.hold_id().is_none() {
        batches.push(vec![Charge { op: Op::UpTo(upto), ..take(3) }]);
    }
    if plan.can_reserve() {
        let reserve = ReservationOp::Reserve {
            reserve: Reserve { least: 1, most: 1, timeout: 60 },
            once: None,
        };
        let op = Op::Reservation(reserve);
        batches.push(vec![Charge { op, hold: Some("id"), ..take(0) }]);
    }
    let mut all = Vec::new();
    for together in [false, true] {
        for charges in &batches {
            let mut answers = Answers::new();
            let batch = Batch { together, ..Batch::new(charges, PATIENCE) };
            store.charge(&batch, &mut answers).await;
            all.extend(answers);
        }
    }
    all
}

/// Charges keys of each plan while the server is in a state. `enter` and `leave` lead to it and from it.
fn refuses(
    server: &Server,
    topology: impl Fn() -> Topology,
    (error, code): (StoreError, &str),
    enter: impl Fn(),
    leave: impl Fn(),
) {
    let log = Log::default();
    let _guard = log.capture();
    for plan in plans() {
        server.command(&["FLUSHALL"]);
        // The current thread logs, so it runs all tasks.
        runtime().block_on(async {
            let store = connected(options(topology())).await;
            enter();
            let answers = charge_all(&store, &plan).await;
            let shape = plan.shape();
            let failed: Vec<_> = answers.iter().map(|answer| answer.as_ref().err()).collect();
            assert_eq!(failed, vec![Some(&error); failed.len()], "{shape} {}", log.text());
            leave();
            until("it to be used again", async || try_take(&store, "other", &plan).await.is_ok())
                .await;
        });
    }
    let text = log.text();
    assert!(text.contains(code) && !text.contains("redis key failed"), "{code}: {text}");
}

fn set(server: &Server, name: &str, value: &str) {
    server.command(&["CONFIG", "SET", name, value]);
}

#[test]
fn too_few_replicas_and_no_memory() {
    let server = Server::start();
    let topology = || single(&server);
    for (error, code, setting, value) in [
        (StoreError::NoReplicas, "NOREPLICAS", "min-replicas-to-write", "1"),
        (StoreError::OutOfMemory, "OOM", "maxmemory", "1"),
    ] {
        let (enter, leave) = (|| set(&server, setting, value), || set(&server, setting, "0"));
        refuses(&server, topology, (error, code), enter, leave);
    }
}

#[test]
fn a_failed_save() {
    let server = Server::configured(&["save 3600 1000000", "dbfilename dump.rdb"]);
    let dump = server.directory().join("dump.rdb");
    // No file replaces a directory.
    std::fs::create_dir_all(dump.join("full")).unwrap();
    let saved = |wanted: &str| {
        server.command(&["BGSAVE"]);
        wait_for("the save to end", || {
            let info = server.command(&["INFO", "persistence"]).text();
            info.contains("rdb_bgsave_in_progress:0").then_some(())
        });
        let info = server.command(&["INFO", "persistence"]).text();
        assert!(info.contains(&format!("rdb_last_bgsave_status:{wanted}")), "{info}");
    };
    let stop = |value: &str| set(&server, "stop-writes-on-bgsave-error", value);
    saved("err");
    stop("no");
    let misconf = (StoreError::NotSaved, "MISCONF");
    refuses(&server, || single(&server), misconf, || stop("yes"), || stop("no"));
}

#[test]
fn replicas() {
    let gone = servers::free_port().to_string();
    for (stale, error, code) in
        [("yes", StoreError::ReadOnly, "READONLY"), ("no", StoreError::MasterDown, "MASTERDOWN")]
    {
        let server = Server::configured(&[&format!("replica-serve-stale-data {stale}")]);
        let replicaof = |host: &str, port: &str| drop(server.command(&["REPLICAOF", host, port]));
        let (enter, leave) = (|| replicaof("127.0.0.1", &gone), || replicaof("NO", "ONE"));
        refuses(&server, || single(&server), (error, code), enter, leave);
    }
}

#[test]
fn a_cluster_without_one_of_its_slots() {
    for reads in ["no", "yes"] {
        let reads = format!("cluster-allow-reads-when-down {reads}");
        let server = Server::configured(&["cluster-enabled yes", &reads]);
        server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        let state = |state: &str| {
            wait_for("the cluster to notice", || {
                server.command(&["CLUSTER", "INFO"]).text().contains(state).then_some(())
            });
        };
        state("cluster_state:ok");
        let entries = [("key", "a")];
        let key = Key { domain: "test", entries: &entries };
        let used: Vec<u16> = plans()
            .iter()
            .map(|plan| key::slot(&weir_store::key_bytes("weir:", &key, plan, false)))
            .collect();
        let free = (0..16_384).find(|slot| !used.contains(slot)).unwrap().to_string();
        let enter = || {
            server.command(&["CLUSTER", "DELSLOTS", &free]);
            state("cluster_state:fail");
        };
        let leave = || {
            server.command(&["CLUSTER", "ADDSLOTS", &free]);
            state("cluster_state:ok");
        };
        let topology = || Topology::Cluster(endpoints(&[server.addr()]));
        refuses(&server, topology, (StoreError::ClusterDown, "cluster is down"), enter, leave);
    }
}

#[test]
fn a_script_that_does_not_end() {
    let server = Server::configured(&["lua-time-limit 10"]);
    let port = server.port();
    let enter = || {
        std::thread::spawn(move || {
            let mut client = Client::connect(port).unwrap();
            let _ = client.send(&["EVAL", "while true do end", "0"]);
        });
        wait_for("the server to be busy", || {
            let reply = server.try_command(&["PING"]).ok()?;
            matches!(reply, servers::Reply::Error(_)).then_some(())
        });
    };
    let leave = || drop(server.command(&["SCRIPT", "KILL"]));
    refuses(&server, || single(&server), (StoreError::Busy, "BUSY"), enter, leave);
}

#[test]
fn commands_and_keys_that_the_user_may_not_use() {
    let server = Server::with(Config {
        lines: vec![
            "user default on >root ~* &* +@all".into(),
            "user weir on nopass ~* +@all".into(),
        ],
        password: Some("root".into()),
        ..Config::default()
    });
    let rules =
        |rules: &[&str]| drop(server.command(&[&["ACL", "SETUSER", "weir"], rules].concat()));
    let all: &[&str] = &["allkeys", "+@all"];
    let writes: &[&str] = &["-set", "-incrby", "-setrange"];
    let (evals, keys): (&[&str], &[&str]) = (&["-eval", "-evalsha", "-incrby"], &["resetkeys"]);
    for less in [writes, evals, keys] {
        let log = Log::default();
        let _guard = log.capture();
        for plan in plans() {
            server.command(&["FLUSHALL"]);
            runtime().block_on(async {
                let mut options = options(single(&server));
                options.access.login.username = Some("weir".to_owned());
                options.access.login.password = Some("any".to_owned());
                let store = connected(options).await;
                rules(less);
                for answer in charge_all(&store, &plan).await {
                    let shape = plan.shape();
                    assert_eq!(answer, Err(StoreError::NotPermitted), "{less:?} {shape}");
                }
                rules(all);
            });
        }
        assert!(!log.text().contains("redis key failed"), "{}", log.text());
    }
}

/// A server that loads its data answers nothing else.
#[test]
fn a_server_that_loads_its_data() {
    let mut server = Server::configured(&[
        "save 3600 1000000",
        "rdbcompression no",
        "key-load-delay 100000",
        "loading-process-events-interval-bytes 1024",
    ]);
    let fill = "for i = 1, 1000 do redis.call('SET', 'k' .. i, string.rep('x', 3000)) end";
    server.command(&["EVAL", fill, "0"]);
    server.command(&["SAVE"]);
    server.restart();
    runtime().block_on(async {
        let store = RedisStore::new(options(single(&server)));
        until("it to say why", async || {
            try_take(&store, "a", &plan(1, Unit::Day)).await == Err(StoreError::Loading)
        })
        .await;
    });
}

#[test]
fn errors_are_known_by_their_text() {
    for (text, error) in [
        ("@user_script: 1: -NOREPLICAS Not enough good replicas to write.", StoreError::NoReplicas),
        (
            "NOPERM User READONLY has no permissions to run the 'set' command",
            StoreError::NotPermitted,
        ),
        (
            "ERR The user executing the script can't run this command or subcommand",
            StoreError::NotPermitted,
        ),
        ("MISCONF Errors writing to the AOF file: No space left on device", StoreError::NotSaved),
        (
            "ERR Script attempted to execute a command while the cluster is down",
            StoreError::ClusterDown,
        ),
        ("CLUSTERDOWN The cluster is down and only accepts read commands", StoreError::ClusterDown),
        ("CLUSTERDOWN Hash slot not served", StoreError::ClusterDown),
        ("LOADING Redis is loading the dataset in memory", StoreError::Loading),
        ("ERR unknown command 'TIME', with args beginning with: ", StoreError::Unavailable),
        ("", StoreError::Unavailable),
    ] {
        assert_eq!(store_error(text), error, "{text}");
    }
}

#[test]
fn each_reason_has_a_row() {
    let page = include_str!("../../../../docs/redis.md");
    for error in StoreError::ALL {
        let reason = format!("`{}`", error.name());
        let is_row =
            |line: &&str| line.split(" | ").next().is_some_and(|cell| cell.contains(&reason));
        assert!(page.lines().any(|line| is_row(&line)), "{reason}");
    }
}
