//! Real Redis servers for tests: single, TLS, clusters, sentinels; and a proxy that fails on demand.
//! Each ends when its value is dropped.
//!
//! The unit tests, the tests in `tests/` and the benchmarks include this file, so it depends on none
//! of them.
#![allow(dead_code, reason = "each that includes it uses another part")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests wait for other processes, and a poisoned lock fails them"
)]

#[path = "redis/cluster.rs"]
pub mod cluster;
#[path = "redis/fake.rs"]
pub mod fake;
#[path = "redis/proxy.rs"]
pub mod proxy;
#[path = "redis/sentinel.rs"]
pub mod sentinel;
#[path = "redis/sharding.rs"]
pub mod sharding;
#[path = "redis/tls.rs"]
pub mod tls;
#[path = "redis/wire.rs"]
mod wire;

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
pub use wire::{Client, Reply};

/// How long a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until there is a value.
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for a condition, while this runtime's tasks run.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Finds a port that is free, and whose cluster bus port is free too.
pub fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if port < 50_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

/// The program to start: redis-server, or the one that WEIR_REDIS_SERVER names, such as valkey-server.
fn program() -> String {
    std::env::var("WEIR_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// One server.
#[derive(Debug)]
pub struct Server {
    child: Option<Child>,
    port: u16,
    config: PathBuf,
    sentinel: bool,
    tls: Option<tls::Certificates>,
    password: Option<String>,
    directory: TempDir,
}

/// The configuration of a server.
#[derive(Debug, Default)]
pub struct Config {
    /// Lines of its configuration file, added to those of every server.
    pub lines: Vec<String>,
    /// Serves TLS only, and requires a client certificate.
    pub tls: bool,
    /// Runs as a sentinel.
    pub sentinel: bool,
    /// The password with which the tests log in.
    pub password: Option<String>,
}

impl Server {
    pub fn start() -> Server {
        Server::with(Config::default())
    }

    /// Starts a server with additional lines in its configuration file.
    pub fn configured(lines: &[&str]) -> Server {
        let lines = lines.iter().map(|&line| line.to_owned()).collect();
        Server::with(Config { lines, ..Config::default() })
    }

    pub fn with(config: Config) -> Server {
        // Another process may bind the port before the server does.
        for _ in 0..10 {
            if let Some(server) = Server::try_start(&config) {
                return server;
            }
        }
        panic!("redis-server found no free port");
    }

    fn try_start(config: &Config) -> Option<Server> {
        let directory = TempDir::with_prefix("weir-redis").unwrap();
        let port = free_port();
        let path = directory.path();
        let tls = config.tls.then(|| tls::Certificates::make(path));
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            "daemonize no".to_owned(),
            format!("dir {}", path.display()),
            "loglevel notice".to_owned(),
        ];
        match &tls {
            None => lines.push(format!("port {port}")),
            Some(tls) => lines.extend([
                "port 0".to_owned(),
                format!("tls-port {port}"),
                format!("tls-ca-cert-file {}", tls.ca.display()),
                format!("tls-cert-file {}", tls.server_cert.display()),
                format!("tls-key-file {}", tls.server_key.display()),
                "tls-auth-clients yes".to_owned(),
            ]),
        }
        if !config.sentinel {
            lines.extend([
                "save \"\"".to_owned(),
                "appendonly no".to_owned(),
                "repl-diskless-sync-delay 0".to_owned(),
                format!("unixsocket {}", path.join("redis.sock").display()),
            ]);
        }
        lines.extend(config.lines.iter().cloned());
        let file = path.join("redis.conf");
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        let mut server = Server {
            child: None,
            port,
            config: file,
            sentinel: config.sentinel,
            tls,
            password: config.password.clone(),
            directory,
        };
        server.launch();
        server.is_up().then_some(server)
    }

    fn launch(&mut self) {
        let log = || File::options().create(true).append(true).open(self.log_path()).unwrap();
        let mut command = Command::new(program());
        command.arg(&self.config).stdin(Stdio::null()).stdout(log()).stderr(log());
        if self.sentinel {
            command.arg("--sentinel");
        }
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("redis-server does not start ({error}): `scripts/test` installs it")
        });
        self.child = Some(child);
    }

    /// Waits until it answers. Returns false if its port was taken.
    fn is_up(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(child) = &mut self.child
                && let Ok(Some(status)) = child.try_wait()
            {
                let log = self.log();
                if log.contains("Address already in use") {
                    return false;
                }
                panic!("redis-server ended ({status}):\n{log}");
            }
            let answers = match &self.tls {
                None => Client::connect(self.port).is_ok_and(|mut client| {
                    // An error is an answer too: a password may be required.
                    client.send(&["PING"]).is_ok()
                }),
                Some(_) => self.log().contains("Ready to accept connections"),
            };
            if answers {
                return true;
            }
            assert!(Instant::now() < deadline, "redis-server does not come up:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running server").id()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The certificates of a server with TLS.
    pub fn certificates(&self) -> &tls::Certificates {
        self.tls.as_ref().expect("a server with TLS")
    }

    /// Sends one command. Panics if the reply is an error.
    pub fn command(&self, words: &[&str]) -> Reply {
        match self.try_command(words) {
            Ok(Reply::Error(error)) => panic!("{words:?}: {error}"),
            Ok(reply) => reply,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// Sends one command. The reply may be an error.
    pub fn try_command(&self, words: &[&str]) -> std::io::Result<Reply> {
        let mut client = Client::connect(self.port)?;
        if let Some(password) = &self.password {
            client.send(&["AUTH", password])?;
        }
        client.send(words)
    }

    /// Stops the process: connections stay open, nothing is answered.
    pub fn stop(&self) {
        self.signal("STOP");
    }

    pub fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        let done = Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        assert!(done.success());
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts again on the same port, empty.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
        assert!(self.is_up(), "another process took the port");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
