//! Connections follow the master that the sentinels name, while the old one still counts.

use std::net::TcpListener;
use std::time::Instant;

use parking_lot::Mutex;

use super::servers::sentinel::{MASTER, Sentinels};
use super::servers::{Client, Server};
use super::*;
use weir_store::Operations;

/// Runs a store's maintenance while a test goes on.
async fn maintained(store: &RedisStore, test: impl Future<Output = ()>) {
    tokio::select! {
        () = store.maintain() => unreachable!("it never ends"),
        () = test => {}
    }
}

fn by_sentinels(sentinels: Vec<Endpoint>) -> RedisOptions {
    options(Topology::Sentinel { master: MASTER.to_owned(), sentinels })
}

fn is_at(store: &RedisStore, port: u16) -> bool {
    let endpoint = Endpoint::Tcp("127.0.0.1".into(), port);
    store.all_connections().all(|connection| connection.endpoint() == Some(endpoint.clone()))
}

/// Returns how many keys there are in a server.
fn keys(server: &Server) -> i64 {
    server.command(&["DBSIZE"]).int()
}

/// A sentinel that says what a test sets.
#[derive(Default)]
struct FakeSentinel {
    port: u16,
    /// The port and the epoch of the master. Without an epoch, it does not permit to ask for it.
    named: Mutex<(u16, Option<u64>)>,
    asked: AtomicU64,
}

impl FakeSentinel {
    fn start(master: &Server, epoch: Option<u64>) -> Arc<FakeSentinel> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let named = Mutex::new((master.port(), epoch));
        let fake = Arc::new(FakeSentinel { port, named, ..FakeSentinel::default() });
        let of_thread = fake.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let fake = of_thread.clone();
                std::thread::spawn(move || fake.serve(Client::serve(stream)));
            }
        });
        fake
    }

    fn serve(&self, mut client: Client) {
        let texts = |texts: &[String]| {
            let text = |text: &String| format!("${}\r\n{text}\r\n", text.len());
            format!("*{}\r\n{}", texts.len(), texts.iter().map(text).collect::<String>())
        };
        while let Ok(words) = client.command() {
            let (port, epoch) = *self.named.lock();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let reply = match (&words[..], epoch) {
                (["SENTINEL", "get-master-addr-by-name", MASTER], _) => {
                    texts(&["127.0.0.1".to_owned(), port.to_string()])
                }
                (["SENTINEL", "master", MASTER], epoch) => {
                    self.asked.fetch_add(1, Ordering::Relaxed);
                    match epoch {
                        Some(epoch) => texts(&["config-epoch".to_owned(), epoch.to_string()]),
                        None => "-NOPERM this user has no permissions\r\n".to_owned(),
                    }
                }
                _ => "+OK\r\n".to_owned(),
            };
            if client.reply(&reply).is_err() {
                return;
            }
        }
    }

    fn name(&self, port: u16, epoch: Option<u64>) {
        *self.named.lock() = (port, epoch);
    }
}

/// Makes charges until all sentinels were asked twice more. None may fail.
async fn charge_meanwhile(store: &RedisStore, sentinels: &[Arc<FakeSentinel>], plan: &Arc<Plan>) {
    let asked: Vec<u64> = sentinels.iter().map(|it| it.asked.load(Ordering::Relaxed)).collect();
    until("all sentinels to be asked", async || {
        try_take(store, "a", plan).await.unwrap();
        let twice = |(fake, before): (&Arc<FakeSentinel>, &u64)| {
            fake.asked.load(Ordering::Relaxed) >= before + 2
        };
        sentinels.iter().zip(&asked).all(twice)
    })
    .await;
}

fn endpoints_of(sentinels: &[Arc<FakeSentinel>]) -> Vec<Endpoint> {
    sentinels.iter().map(|fake| Endpoint::Tcp("127.0.0.1".into(), fake.port)).collect()
}

#[test]
fn connections_move_to_the_master_of_the_newest_epoch_without_a_failed_charge() {
    let [old, new] = [Server::start(), Server::start()];
    let sentinels = [1, 2, 3].map(|_| FakeSentinel::start(&old, Some(6)));
    runtime().block_on(async {
        let store = connected(by_sentinels(endpoints_of(&sentinels))).await;
        let plan = plan(1_000_000, Unit::Day);
        let test = async {
            charge_meanwhile(&store, &sentinels, &plan).await;
            assert!(is_at(&store, old.port()));
            // One sentinel knows first.
            sentinels[1].name(new.port(), Some(7));
            charge_meanwhile(&store, &sentinels, &plan).await;
            assert!(is_at(&store, new.port()));
            assert_eq!((keys(&old), keys(&new)), (1, 1));
            // A new connection asks them in turn, and hears of the old master first.
            let late = connected(by_sentinels(endpoints_of(&sentinels))).await;
            assert!(is_at(&late, old.port()));
            let moved = async || {
                try_take(&late, "a", &plan).await.unwrap();
                is_at(&late, new.port())
            };
            maintained(&late, until("it to move", moved)).await;
            // Nobody answers at a master that one of them makes up.
            sentinels[2].name(servers::free_port(), Some(8));
            charge_meanwhile(&store, &sentinels, &plan).await;
            assert!(is_at(&store, new.port()));
        };
        maintained(&store, test).await;
    });
}

#[test]
fn without_epochs_connections_move_once_no_sentinel_names_the_old_master() {
    let [old, new] = [Server::start(), Server::start()];
    let sentinels = [1, 2].map(|_| FakeSentinel::start(&old, None));
    runtime().block_on(async {
        let store = connected(by_sentinels(endpoints_of(&sentinels))).await;
        let plan = plan(1_000_000, Unit::Day);
        let test = async {
            sentinels[0].name(new.port(), None);
            charge_meanwhile(&store, &sentinels, &plan).await;
            assert!(is_at(&store, old.port()));
            sentinels[1].name(new.port(), None);
            charge_meanwhile(&store, &sentinels, &plan).await;
            assert!(is_at(&store, new.port()));
        };
        maintained(&store, test).await;
    });
}

/// What a planned failover did to charges, of which one was made every two milliseconds.
#[derive(Debug)]
struct Failover {
    /// How long the new master was one before connections moved.
    passed: Duration,
    lost: u64,
    failed: u64,
}

/// Fails over from a master to one of two replicas.
fn fail_over(lines: &[&str]) -> Failover {
    let group = Sentinels::with_replicas(2, lines);
    let (mut made, mut counted, mut failed) = (0, 0, 0);
    let mut passed = Duration::ZERO;
    runtime().block_on(async {
        let store = connected(by_sentinels(endpoints(&group.addresses()))).await;
        let plan = plan(1_000_000, Unit::Day);
        let test = async {
            let mut charge = async || {
                match try_take(&store, "a", &plan).await {
                    Ok(decision) => (made, counted) = (made + 1, decision.used_before + 1),
                    Err(_) => failed += 1,
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            };
            charge().await;
            group.sentinels[0].command(&["SENTINEL", "FAILOVER", MASTER]);
            let role = |server: &Server| server.command(&["ROLE"]).list()[0].text();
            until("the replica to be the master", async || {
                charge().await;
                role(&group.replica) == "master"
            })
            .await;
            let promoted = Instant::now();
            until("the store to move", async || {
                charge().await;
                is_at(&store, group.replica.port())
            })
            .await;
            passed = promoted.elapsed();
            charge().await;
            assert_eq!(role(&group.master), "master", "not demoted yet");
        };
        maintained(&store, test).await;
    });
    Failover { passed, lost: made - counted, failed }
}

/// The sentinels demote the old master only after some ten seconds; until then it counts as before.
#[test]
fn a_planned_failover_loses_at_most_two_seconds_of_counts() {
    let failover = fail_over(&[]);
    assert!(failover.passed <= Duration::from_secs(2), "{failover:?}");
    assert_eq!(failover.failed, 0, "{failover:?}");
}

/// As soon as one of its replicas has left it, the old master refuses what would be lost.
#[test]
fn an_old_master_that_needs_all_its_replicas_loses_nothing() {
    let failover = fail_over(&["min-replicas-to-write 2"]);
    // One charge may come between the promotion and its notice.
    assert!(failover.lost <= 2 && failover.failed > 0, "{failover:?}");
}
