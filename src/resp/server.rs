//! What all connections of Redis clients share: password, cached limits of commands, bounds on clients, and metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::command::Command;
use super::plans::Plans;
use crate::net::ClientMemory;
use crate::net::token_file::TokenFile;
use crate::rls::service::RateLimit;
use weir_common::metric_families;
use weir_common::metrics::{Counter, Histogram, MetricSink, MetricSource};
use weir_common::threads::repeat_blocking;
use weir_common::throttle::Throttle;

/// How often the file of the password is read.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub const MAX_REQUEST_BYTES: usize = 64 << 10;

/// The least [`Limits::max_buffered`]: one connection gets an eighth of it, for the largest request and a reply as large,
/// each in a buffer of up to twice its length.
pub const MIN_BUFFERED_BYTES: usize = 32 * MAX_REQUEST_BYTES;

/// Bytes per connection that do not count against [`Limits::max_buffered`]. Requests and replies below 16 KiB each always
/// fit.
const FREE_BYTES: usize = 64 << 10;

/// The bounds on the time and the memory of clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The timeout of receiving the rest of a request, and of a client reading replies.
    pub timeout: Duration,
    /// The largest request, in bytes.
    pub max_request: usize,
    /// Bytes of partly received requests, unread replies and requests that wait for the store across all connections. The
    /// first 64 KiB of requests and replies of each connection are free.
    pub max_buffered: usize,
}

#[derive(Debug)]
pub struct Resp<S> {
    pub(super) rate_limit: RateLimit<S>,
    pub(super) limits: Limits,
    /// The password of the port; none if clients need none.
    pub(super) password: Option<TokenFile>,
    connections: AtomicU64,
    pub(super) client_memory: Arc<ClientMemory>,
    pub(super) plans: Plans,
    /// Whether the store decides as of a time that the client names.
    pub(super) accepts_at: bool,
    pub stats: Arc<RespStats>,
    http_log: Throttle,
    password_log: Throttle,
}

impl<S> Resp<S> {
    pub fn new(rate_limit: RateLimit<S>, limits: Limits, password: Option<TokenFile>) -> Resp<S> {
        Resp {
            rate_limit,
            limits,
            password,
            connections: AtomicU64::new(0),
            client_memory: ClientMemory::new(limits.max_buffered, FREE_BYTES),
            plans: Plans::new(),
            accepts_at: true,
            stats: Arc::default(),
            http_log: Throttle::default(),
            password_log: Throttle::default(),
        }
    }

    /// Refuses times that clients name, for a store that goes by a clock of its own.
    pub fn refusing_at(self) -> Resp<S> {
        Resp { accepts_at: false, ..self }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn count_wrong_password(&self, peer: Option<SocketAddr>) {
        self.stats.wrong_passwords.inc();
        if let Some(suppressed) = self.password_log.pass() {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(peer, suppressed, "Redis client sent a wrong password");
        }
    }

    pub(super) fn count_http(&self, peer: Option<SocketAddr>) {
        self.stats.protocol_errors.inc();
        if let Some(suppressed) = self.http_log.pass() {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(
                peer,
                suppressed,
                "connection for Redis clients sent HTTP and was closed"
            );
        }
    }
}

impl<S: Send + Sync + 'static> Resp<S> {
    /// Reads the password again when its file changes. Ends only if there is none.
    pub async fn follow_password(self: Arc<Self>) {
        if self.password.is_some() {
            // A file system may not respond.
            let poll = move || self.password.iter().for_each(TokenFile::poll);
            repeat_blocking(POLL_INTERVAL, poll, || ()).await;
        }
    }
}

#[derive(Debug, Default)]
pub struct RespStats {
    commands: [Counter; Command::ALL.len()],
    /// The latencies of all commands but WEIR.COUNT.
    pub decisions: Histogram,
    pub(super) protocol_errors: Counter,
    pub(super) wrong_passwords: Counter,
    pub(super) memory_refusals: Counter,
}

metric_families! {
    COMMANDS: counter("resp_commands", &["command"]) = "Commands of Redis clients, by command";
    DURATION: histogram("resp_decision_duration_seconds", &[])
        = "Time from reading a command of a Redis client to its reply, except weir.count";
    PROTOCOL_ERRORS: counter("resp_protocol_errors", &[])
        = "Connections of Redis clients closed because of invalid or too large requests";
    WRONG_PASSWORDS: counter("resp_wrong_passwords", &[]) = "Wrong passwords and user names of Redis clients";
    MEMORY_REFUSALS: counter("resp_memory_refusals", &[])
        = "Connections of Redis clients closed because of clients.max_buffered";
}

impl RespStats {
    pub(super) fn count(&self, command: Command) {
        self.commands[command as usize].inc();
    }
}

impl MetricSource for RespStats {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let commands = Command::ALL.iter().zip(&self.commands);
        sink.counters(COMMANDS, commands.map(|(command, count)| (command.label(), count.get())));
        sink.histogram(DURATION, &self.decisions.snapshot());
        sink.counter(PROTOCOL_ERRORS, self.protocol_errors.get());
        sink.counter(WRONG_PASSWORDS, self.wrong_passwords.get());
        sink.counter(MEMORY_REFUSALS, self.memory_refusals.get());
    }
}
