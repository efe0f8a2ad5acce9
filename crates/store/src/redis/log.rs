//! Log lines about servers and keys. Each message is throttled across all connections of a store.

mod outages;
mod slow;

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) use self::outages::{Failure, OutageMember, Outages};
pub(super) use self::slow::{SlowLines, log_slow};
use super::access::Endpoint;
use super::key::EscapedKey;
use crate::StoreError;
use weir_common::throttle::Throttle;
use weir_limit::Micros;

/// The shortest time between two lines of one message.
const INTERVAL: Duration = Duration::from_secs(1);

/// The largest difference between clocks that is not logged.
const MAX_SKEW: Micros = 100_000;

#[derive(Debug)]
pub(super) struct RedisLog {
    pub outages: Outages,
    pub slow: SlowLines,
    key: Throttle,
    command: Throttle,
    slots: Throttle,
    nodes: Throttle,
    redirect: Throttle,
    master: Throttle,
    skew: Throttle,
    policy_logged: AtomicBool,
    permissions_logged: AtomicBool,
}

impl Default for RedisLog {
    fn default() -> Self {
        let throttle = || Throttle::new(INTERVAL);
        RedisLog {
            outages: Outages::default(),
            slow: SlowLines::default(),
            key: throttle(),
            command: throttle(),
            slots: throttle(),
            nodes: throttle(),
            redirect: throttle(),
            master: throttle(),
            skew: throttle(),
            policy_logged: AtomicBool::new(false),
            permissions_logged: AtomicBool::new(false),
        }
    }
}

impl RedisLog {
    /// Logs a key that failed. `message` is the server's, for an error of no other kind.
    pub fn key_failed(&self, error: StoreError, key: &[u8], message: &[u8]) {
        let key = EscapedKey(key);
        match error {
            StoreError::WrongType | StoreError::Corrupt => self.warn_key(&key, &error),
            StoreError::Unavailable if message.is_empty() => {
                self.warn_key(&key, &"a command of the script was refused; ACL LOG may say why");
            }
            StoreError::Unavailable => self.warn_key(&key, &EscapedKey(message)),
            // Errors of the server, not of one key.
            StoreError::OutOfMemory
            | StoreError::ReadOnly
            | StoreError::TimedOut
            | StoreError::CallerDeadline => {}
        }
    }

    fn warn_key(&self, key: &EscapedKey<'_>, error: &dyn Display) {
        if let Some(suppressed) = self.key.pass() {
            tracing::warn!(%key, %error, suppressed, "redis key failed");
        }
    }

    /// Logs a command that a server answered with an error.
    pub fn command_failed(&self, error: &dyn Display) {
        if let Some(suppressed) = self.command.pass() {
            tracing::warn!(%error, suppressed, "redis command failed");
        }
    }

    pub fn slots_unknown(&self, error: &dyn Display) {
        if let Some(suppressed) = self.slots.pass() {
            tracing::warn!(%error, suppressed, "cannot read redis cluster slots, retrying");
        }
    }

    /// Logs that only nodes with slots are known: keys that move to a new node fail until it has slots.
    pub fn nodes_unknown(&self, error: &dyn Display) {
        if let Some(suppressed) = self.nodes.pass() {
            tracing::warn!(
                %error, suppressed,
                "cannot list redis cluster nodes: allow the user the command CLUSTER NODES"
            );
        }
    }

    /// Logs a redirect to an address that the cluster does not list.
    pub fn redirect_refused(&self, server: &Endpoint, target: &Endpoint) {
        if let Some(suppressed) = self.redirect.pass() {
            tracing::warn!(
                %server, %target, suppressed,
                "redis redirect to an address outside the cluster refused"
            );
        }
    }

    /// Logs that connections move to another master.
    pub fn master_moved(&self, master: &Endpoint) {
        if let Some(suppressed) = self.master.pass() {
            tracing::info!(%master, suppressed, "redis master changed, moving connections");
        }
    }

    /// Logs that connections stay at their server, since another one cannot be used.
    pub fn master_unreachable(&self, master: &Endpoint, error: &dyn Display) {
        if let Some(suppressed) = self.master.pass() {
            tracing::warn!(
                %master, %error, suppressed,
                "cannot connect to the redis master that the sentinels name, counting on the old one"
            );
        }
    }

    /// Warns, once, of a server that may drop states before they expire.
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

    /// Logs clocks that differ by more than [`MAX_SKEW`].
    pub fn clock_skew(&self, server: &Endpoint, theirs: Micros, ours: Micros) {
        let skew = theirs.abs_diff(ours);
        if skew > MAX_SKEW
            && let Some(suppressed) = self.skew.pass()
        {
            let skew_ms = skew / 1_000;
            tracing::warn!(
                %server, skew_ms, suppressed,
                "clocks of this machine and redis differ, replicas may disagree about windows: \
                 synchronize clocks, or set store.redis.clock to server"
            );
        }
    }
}
