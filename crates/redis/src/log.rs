//! Log lines about Redis servers and keys in them. Each message is throttled across all connections of a store.

pub(super) mod server;

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use self::server::{ConnectionLog, ServerLog};
use super::key::EscapedKey;
use super::options::Endpoint;
use weir_common::throttle::Throttle;
use weir_limit::Micros;
use weir_store::StoreError;

/// The shortest time between two lines of one message.
const INTERVAL: Duration = Duration::from_secs(1);

/// The largest difference between clocks that is not logged.
const MAX_SKEW: Micros = 100_000;

#[derive(Debug, Default)]
pub(super) struct RedisLog {
    /// By the name of the server, for as long as there are connections to it.
    servers: Mutex<HashMap<String, Weak<ServerLog>>>,
    key: Message,
    command: Message,
    slots: Message,
    nodes: Message,
    redirect: Message,
    master: Message,
    skew: Message,
    policy_logged: AtomicBool,
    permissions_logged: AtomicBool,
}

#[derive(Debug)]
struct Message(Throttle);

impl Default for Message {
    fn default() -> Self {
        Message(Throttle::new(INTERVAL))
    }
}

/// Logs a message with these fields and the number of lines suppressed before, unless this one is to be suppressed.
macro_rules! log {
    ($message:expr, $level:ident, { $($field:tt)* }, $text:literal) => {
        if let Some(suppressed) = $message.0.pass() {
            tracing::$level!($($field)*, suppressed, $text);
        }
    };
}

impl RedisLog {
    pub fn connection(&self, server: &dyn Display) -> ConnectionLog {
        let (mut servers, name) = (self.servers.lock(), server.to_string());
        if let Some(server) = servers.get(&name).and_then(Weak::upgrade) {
            return ConnectionLog::new(server);
        }
        servers.retain(|_, server| server.strong_count() > 0);
        let server = Arc::new(ServerLog::new(name.clone()));
        servers.insert(name, Arc::downgrade(&server));
        ConnectionLog::new(server)
    }

    /// Logs a charge that failed, and the key if that is why; else the server's text.
    pub fn charge_failed(&self, error: StoreError, key: &[u8], text: &str) {
        match error {
            StoreError::WrongType | StoreError::Corrupt => {
                log!(self.key, warn, { key = %EscapedKey(key), %error }, "redis key failed");
            }
            _ if text.is_empty() => self.command_failed(&error),
            _ => self.command_failed(&text),
        }
    }

    pub fn command_failed(&self, error: &dyn Display) {
        log!(self.command, warn, { %error }, "redis command failed");
    }

    pub fn slots_unknown(&self, error: &dyn Display) {
        log!(self.slots, warn, { %error }, "cannot read redis cluster slots, retrying");
    }

    /// Logs that only nodes with slots are known: keys that move to a new node fail until it has slots.
    pub fn nodes_unknown(&self, error: &dyn Display) {
        log!(
            self.nodes, warn, { %error },
            "cannot list redis cluster nodes: allow the user the command CLUSTER NODES"
        );
    }

    pub fn redirect_refused(&self, server: &Endpoint, target: &Endpoint) {
        log!(
            self.redirect, warn, { %server, %target },
            "redis redirect to an address outside the cluster refused"
        );
    }

    pub fn master_moved(&self, master: &Endpoint) {
        log!(self.master, info, { %master }, "redis master changed, moving connections");
    }

    pub fn master_unreachable(&self, master: &Endpoint, error: &dyn Display) {
        log!(
            self.master, warn, { %master, %error },
            "cannot connect to the redis master that the sentinels name, counting on the old one"
        );
    }

    pub fn eviction_policy(&self, server: &Endpoint, policy: &str) {
        if !self.policy_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %server,
                policy,
                "redis evicts keys when its memory is full, and their limits start over: set \
                 maxmemory-policy to noeviction, and provide enough memory"
            );
        }
    }

    /// Warns of permissions that the user lacks; once until it has them.
    pub fn permissions(&self, server: &Endpoint, prefix: &str, missing: &[String]) {
        let is_logged = self.permissions_logged.swap(!missing.is_empty(), Ordering::Relaxed);
        if is_logged || missing.is_empty() {
            return;
        }
        let rule = |name: &String| match name.as_str() {
            "key" => format!("~{prefix}*"),
            name => format!("+{name}"),
        };
        let missing = missing.iter().map(rule).collect::<Vec<_>>().join(" ");
        tracing::warn!(
            %server,
            missing,
            "the redis user lacks permissions, and rules that need them fail: add them with ACL SETUSER"
        );
    }

    pub fn clock_skew(&self, server: &Endpoint, theirs: Micros, ours: Micros) {
        let skew = theirs.abs_diff(ours);
        if skew > MAX_SKEW {
            let skew_ms = skew / 1_000;
            log!(
                self.skew, warn, { %server, skew_ms },
                "clocks of this machine and redis differ, replicas may disagree about windows: \
                 synchronize clocks, or set store.redis.clock to server"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_one_server_share_its_lines_while_there_are_any() {
        let log = RedisLog::default();
        let slow = |connection: &ConnectionLog| connection.slow_throttle().pass();
        let [a, b] = [(); 2].map(|()| log.connection(&"redis:6379"));
        let other = log.connection(&"redis:6380");
        assert_eq!((slow(&a), slow(&other), slow(&b)), (Some(0), Some(0), None));
        drop((a, b));
        let _new = log.connection(&"redis:6381");
        assert_eq!(log.servers.lock().len(), 2, "those of closed connections are removed");
    }
}
