//! Passwords in files that come late, change, and are refused.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use parking_lot::Mutex;

use super::servers::cluster::Cluster;
use super::servers::sentinel::{MASTER, Sentinels};
use super::servers::{Client, Config, PATIENCE, Server};
use super::*;

fn with_password_file(mut options: RedisOptions, file: &Path) -> RedisOptions {
    options.access.login.password_file = Some(PasswordFile::new(file.to_owned()));
    options
}

/// A server whose users need the password `pw`.
fn protected() -> Server {
    let (lines, password) = (vec!["requirepass pw".to_owned()], Some("pw".to_owned()));
    Server::with(Config { lines, password, ..Config::default() })
}

async fn until_counted(store: &RedisStore, plan: &Arc<Plan>) {
    until("a charge", async || try_take(store, "a", plan).await.is_ok()).await;
}

#[test]
fn a_password_file_that_is_missing_or_empty_is_waited_for() {
    let server = protected();
    for (i, text) in [None, Some(""), Some("\n"), Some("old")].into_iter().enumerate() {
        let file = server.directory().join(format!("password{i}"));
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        runtime().block_on(async {
            let store = RedisStore::new(with_password_file(options(single(&server)), &file));
            let plan = plan(100, Unit::Day);
            assert!(try_take(&store, "a", &plan).await.is_err(), "{text:?}");
            assert_eq!(store.connections_up(), 0, "{text:?}");
            std::fs::write(&file, "pw\n").unwrap();
            until_counted(&store, &plan).await;
        });
    }
}

/// The reference's REDIS_AUTH_FILE has a user name before the password, or none.
#[test]
fn a_file_may_have_a_user_name() {
    let server = protected();
    server.command(&["ACL", "SETUSER", "weir", "on", ">p:w", "~*", "&*", "+@all"]);
    let file = server.directory().join("login");
    for (text, with_user, is_good) in
        [("weir:p:w\n", true, true), ("pw", true, true), ("weir:p:w", false, false)]
    {
        std::fs::write(&file, text).unwrap();
        runtime().block_on(async {
            let mut options = options(single(&server));
            let new = if with_user { PasswordFile::with_user } else { PasswordFile::new };
            options.access.login.password_file = Some(new(file.clone()));
            let store = RedisStore::new(options);
            let plan = plan(100, Unit::Day);
            match is_good {
                true => until_counted(&store, &plan).await,
                false => assert!(try_take(&store, "a", &plan).await.is_err(), "{text:?}"),
            }
        });
    }
}

#[test]
fn the_password_file_of_a_cluster_is_waited_for() {
    let cluster = Cluster::start(2, 0);
    for server in cluster.servers() {
        server.command(&["CONFIG", "SET", "masterauth", "pw"]);
        server.command(&["CONFIG", "SET", "requirepass", "pw"]);
    }
    let file = cluster.masters[0].directory().join("password");
    runtime().block_on(async {
        let topology = Topology::Cluster(endpoints(&cluster.addresses()));
        let store = RedisStore::new(with_password_file(options(topology), &file));
        let plan = plan(100, Unit::Day);
        assert!(try_take(&store, "a", &plan).await.is_err());
        std::fs::write(&file, "pw\n").unwrap();
        until_counted(&store, &plan).await;
    });
}

#[test]
fn the_password_files_of_sentinels_and_their_master_are_waited_for() {
    let servers = Sentinels::start();
    for sentinel in &servers.sentinels {
        sentinel.command(&["ACL", "SETUSER", "default", "resetpass", ">watcher"]);
    }
    servers.master.command(&["CONFIG", "SET", "requirepass", "pw"]);
    let file = |name: &str| servers.master.directory().join(name);
    let sentinels = endpoints(&servers.addresses());
    let topology = Topology::Sentinel { master: MASTER.to_owned(), sentinels };
    let mut options = with_password_file(options(topology), &file("master"));
    options.sentinel_access.login.password_file = Some(PasswordFile::new(file("sentinel")));
    runtime().block_on(async {
        let store = RedisStore::new(options);
        let plan = plan(100, Unit::Day);
        for (name, password) in [("sentinel", "watcher"), ("master", "pw")] {
            assert!(try_take(&store, "a", &plan).await.is_err());
            std::fs::write(file(name), password).unwrap();
        }
        until_counted(&store, &plan).await;
    });
}

/// A pipe that nobody writes to hangs as a file on a lost mount does.
#[test]
fn a_password_file_that_hangs_holds_no_thread_that_serves() {
    let server = protected();
    let [file, fresh, pipe] =
        ["password", "fresh", "pipe"].map(|name| server.directory().join(name));
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    std::fs::hard_link(&file, &pipe).unwrap();
    let mut options = with_password_file(options(single(&server)), &file);
    options.access.timeout = Duration::from_millis(100);
    let (done, ended) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        runtime().block_on(async {
            let Topology::Single(endpoint) = &options.topology else { unreachable!() };
            let refused = handshake::connect(&options.access, endpoint).await.unwrap_err();
            assert!(refused.to_string().ends_with("password: no answer within 50ms"), "{refused}");
            options.access.timeout = Duration::from_secs(10);
            let (store, plan) = (RedisStore::new(options.clone()), plan(100, Unit::Day));
            assert!(take_within(&store, "a", &plan, Duration::from_millis(20)).await.is_err());
            done.send(()).unwrap();
            until_counted(&store, &plan).await;
            done.send(()).unwrap();
        });
    });
    ended.recv_timeout(PATIENCE).expect("the thread goes on");
    // What hangs ends, and there is a file.
    std::fs::write(&fresh, "pw\n").unwrap();
    std::fs::rename(&fresh, &file).unwrap();
    std::fs::write(&pipe, "").unwrap();
    ended.recv_timeout(PATIENCE).expect("it logs in");
}

/// A server whose passwords and sessions a test ends.
struct FakeServer {
    password: Mutex<String>,
    /// Sessions before this one are told to log in.
    first_valid: AtomicUsize,
    sessions: AtomicUsize,
    logins: AtomicUsize,
    /// Written when a password is refused: the file is replaced at that moment.
    replace: Mutex<Option<(PathBuf, String)>>,
}

impl FakeServer {
    fn start(password: &str) -> (Arc<FakeServer>, u16) {
        let fake = Arc::new(FakeServer {
            password: Mutex::new(password.to_owned()),
            first_valid: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            logins: AtomicUsize::new(0),
            replace: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, shared) = (listener.local_addr().unwrap().port(), fake.clone());
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                let session = shared.sessions.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || shared.serve(Client::serve(stream), session));
            }
        });
        (fake, port)
    }

    fn serve(&self, mut client: Client, session: usize) {
        let mut logged_in = false;
        while let Ok(words) = client.command() {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let reply = match words[..] {
                ["AUTH", .., password] if *self.password.lock() == password => {
                    self.logins.fetch_add(1, Ordering::SeqCst);
                    logged_in = true;
                    "+OK\r\n"
                }
                ["AUTH", ..] => {
                    if let Some((file, text)) = self.replace.lock().take() {
                        std::fs::write(file, text).unwrap();
                    }
                    "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
                }
                _ if !logged_in || session < self.first_valid.load(Ordering::SeqCst) => {
                    "-NOAUTH Authentication required.\r\n"
                }
                ["INFO", ..] => "$0\r\n\r\n",
                _ => "+OK\r\n",
            };
            if client.reply(reply).is_err() {
                return;
            }
        }
    }
}

#[test]
fn a_password_that_changes_while_it_is_refused_is_read_again_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "old").unwrap();
    let (fake, port) = FakeServer::start("new");
    *fake.replace.lock() = Some((file.clone(), "new\n".to_owned()));
    let options = with_password_file(options(local(port)), &file);
    let Topology::Single(endpoint) = &options.topology else { unreachable!() };
    runtime().block_on(async {
        // A single attempt: waits between attempts may be long.
        assert!(handshake::connect(&options.access, endpoint).await.is_ok());
        std::fs::write(&file, "another").unwrap();
        let refused = handshake::connect(&options.access, endpoint).await.unwrap_err().to_string();
        assert!(refused.contains("authentication failed"), "{refused}");
    });
    assert_eq!(fake.sessions.load(Ordering::SeqCst), 3);
}

#[test]
fn a_connection_that_has_to_log_in_again_reconnects_with_the_password_as_it_is_now() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "first").unwrap();
    let (fake, port) = FakeServer::start("first");
    runtime().block_on(async {
        let store = connected(with_password_file(options(local(port)), &file)).await;
        for (i, password) in ["second", "third"].into_iter().enumerate() {
            *fake.password.lock() = password.to_owned();
            std::fs::write(&file, password).unwrap();
            fake.first_valid.store(fake.sessions.load(Ordering::SeqCst), Ordering::SeqCst);
            // The first time a charge notices it, then the check of an idle connection.
            if i == 0 {
                let plan = plan(100, Unit::Day);
                assert!(try_take(&store, "a", &plan).await.is_err());
            }
            until("a new login", async || fake.logins.load(Ordering::SeqCst) == i + 2).await;
            until("it to be up", async || store.connections_up() == 1).await;
        }
    });
}
