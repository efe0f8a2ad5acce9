//! A server in memory, and clients of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::net::token_file::{SecretKind, TokenFile};
use crate::net::{ConnectionCounts, ConnectionLimits, Connections};
use crate::resp::{Limits, Resp, RespStats};
use crate::rls::service::{self, RateLimit};
use weir_common::clock::ManualClock;
use weir_controls::ActiveRules;
use weir_limit::SECOND;
use weir_limiter::{Limiter, LimiterOptions};
use weir_rules::RuleSet;
use weir_rules::source::RuleFile;
use weir_store::memory::MemoryStore;
use weir_store::{States, Store};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limits:
      - { name: burst, unit: second, requests_per_unit: 2, algorithm: gcra, burst: 2 }
  - key: log
    rate_limit: { unit: minute, requests_per_unit: 5, algorithm: sliding_log }
  - key: free
    rate_limit: { unlimited: true }
";

/// Returns a file with a password.
pub fn password(text: &str) -> TokenFile {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    std::fs::write(&path, text).unwrap();
    TokenFile::load("resp.password_file", SecretKind::Password, path).unwrap()
}

/// The bytes that a client can send, and be sent, before the other end reads.
const PIPE_BYTES: usize = 1 << 16;

pub struct Server<S> {
    resp: Arc<Resp<S>>,
    connections: Arc<Connections>,
    shutdown: watch::Sender<bool>,
}

impl Server<MemoryStore<Arc<ManualClock>>> {
    pub fn in_memory(limits: Limits, password: Option<TokenFile>) -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000 * SECOND));
        Server::new(MemoryStore::new(clock, 1_000), limits, password, |resp| resp)
    }
}

impl<S: Store + States + 'static> Server<S> {
    /// Returns a server that is `with` an option.
    pub fn new(
        store: S,
        limits: Limits,
        password: Option<TokenFile>,
        with: impl FnOnce(Resp<S>) -> Resp<S>,
    ) -> Server<S> {
        let limiter = Limiter::new(store, LimiterOptions::default());
        let file = RuleFile { name: "test.yaml".into(), text: RULES.into() };
        let (rules, problems) =
            RuleSet::compile(&[file], &weir_rules::RuleOptions::default(), None);
        assert_eq!(problems, []);
        let rules = Arc::new(ActiveRules::of(rules));
        let rate_limit =
            RateLimit::new(Arc::new(limiter), rules, service::ResponseOptions::default());
        let resp = Arc::new(with(Resp::new(rate_limit, limits, password)));
        let limits = ConnectionLimits {
            listener: "test",
            setting: "test.max_connections",
            max: 1_000,
            overflow: 0,
            min_idle: Duration::ZERO,
        };
        let connections = Connections::new(limits, ConnectionCounts::default());
        Server { resp, connections, shutdown: watch::Sender::new(false) }
    }

    pub fn stats(&self) -> &RespStats {
        &self.resp.stats
    }

    /// Serves one end of a connection.
    pub fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> JoinHandle<()> {
        let (resp, handle) = (self.resp.clone(), Arc::new(self.connections.register()));
        let shutdown = self.shutdown.subscribe();
        tokio::spawn(async move { resp.serve(stream, &handle, None, shutdown).await })
    }

    /// Returns the client's end of a new connection.
    pub fn connect(&self) -> DuplexStream {
        let (stream, served) = tokio::io::duplex(PIPE_BYTES);
        self.serve(served);
        stream
    }
}

/// The only client of a server.
pub struct Client {
    pub stream: DuplexStream,
    pub clock: Arc<ManualClock>,
    pub shutdown: watch::Sender<bool>,
    pub stats: Arc<RespStats>,
}

impl Client {
    pub fn connect(password: Option<TokenFile>) -> Client {
        let clock = Arc::new(ManualClock::new(1_700_000_000 * SECOND));
        Client::connect_to(MemoryStore::new(clock.clone(), 1_000), clock, password, |resp| resp)
    }

    /// Connects to a server that is `with` an option.
    pub fn connect_to<S: Store + States + 'static>(
        store: S,
        clock: Arc<ManualClock>,
        password: Option<TokenFile>,
        with: impl FnOnce(Resp<S>) -> Resp<S>,
    ) -> Client {
        let timeout = Duration::from_secs(1);
        let limits = Limits { timeout, max_request: 1_000, max_buffered: 1 << 20 };
        let server = Server::new(store, limits, password, with);
        let (stream, stats) = (server.connect(), server.resp.stats.clone());
        Client { stream, clock, shutdown: server.shutdown, stats }
    }

    /// Sends lines, and returns what is replied to them.
    pub async fn send(&mut self, lines: &str) -> String {
        self.send_until(lines, "ECHO end", "$3\r\nend\r\n").await
    }

    /// Sends lines and a last one, whose reply ends what is returned.
    pub async fn send_until(&mut self, lines: &str, last: &str, end: &str) -> String {
        self.stream.write_all(format!("{lines}\r\n{last}\r\n").as_bytes()).await.unwrap();
        let mut replies = Vec::new();
        while !replies.ends_with(end.as_bytes()) {
            assert_ne!(self.stream.read_buf(&mut replies).await.unwrap(), 0);
        }
        let replies = String::from_utf8(replies).unwrap();
        replies.strip_suffix(end).unwrap().replace("\r\n", " ").trim_end_matches(' ').to_owned()
    }
}
