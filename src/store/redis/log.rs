//! Log lines about servers and keys. Each kind of line is throttled over all lanes of a store.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connect::{About, Endpoint};
use super::key::Shown;
use crate::limit::Micros;
use crate::store::StoreError;
use crate::throttle::Throttle;

/// At most one line of a kind in this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Clocks that differ by more are logged.
const MAX_SKEW: Micros = 100_000;

#[derive(Debug)]
pub(super) struct Log {
    key: Throttle,
    command: Throttle,
    lost: Throttle,
    not_connected: Throttle,
    connected: Throttle,
    down: Throttle,
    up: Throttle,
    slots: Throttle,
    nodes: Throttle,
    redirect: Throttle,
    skew: Throttle,
    policy_logged: AtomicBool,
}

impl Default for Log {
    fn default() -> Self {
        let throttle = || Throttle::new(INTERVAL);
        Log {
            key: throttle(),
            command: throttle(),
            lost: throttle(),
            not_connected: throttle(),
            connected: throttle(),
            down: throttle(),
            up: throttle(),
            slots: throttle(),
            nodes: throttle(),
            redirect: throttle(),
            skew: throttle(),
            policy_logged: AtomicBool::new(false),
        }
    }
}

impl Log {
    /// A key failed by itself. `reason` is what the server said, where there is no kind for it.
    pub fn key_failed(&self, failed: StoreError, key: &[u8], reason: &[u8]) {
        let key = Shown(key);
        match failed {
            StoreError::WrongType | StoreError::Corrupt => self.warn_key(&key, &failed),
            StoreError::Unavailable if reason.is_empty() => {
                self.warn_key(&key, &"a command of the script was refused; ACL LOG may say why");
            }
            StoreError::Unavailable => self.warn_key(&key, &Shown(reason)),
            // These are about the server, and not about one key.
            StoreError::OutOfMemory
            | StoreError::ReadOnly
            | StoreError::TimedOut
            | StoreError::CallerDeadline => {}
        }
    }

    fn warn_key(&self, key: &Shown<'_>, error: &dyn Display) {
        if let Some(suppressed) = self.key.pass() {
            tracing::warn!(%key, %error, suppressed, "redis key failed");
        }
    }

    /// A server answered a command with an error.
    pub fn command_failed(&self, error: &dyn Display) {
        if let Some(suppressed) = self.command.pass() {
            tracing::warn!(%error, suppressed, "redis command failed");
        }
    }

    pub fn connection_lost(&self, server: &Endpoint, error: &str) {
        if let Some(suppressed) = self.lost.pass() {
            tracing::warn!(%server, error, suppressed, "redis connection lost, reconnecting");
        }
    }

    pub fn cannot_connect(&self, server: &dyn Display, error: &str) {
        if let Some(suppressed) = self.not_connected.pass() {
            tracing::warn!(%server, error, suppressed, "cannot connect to redis, retrying");
        }
    }

    pub fn connected_again(&self, server: &Endpoint) {
        if let Some(suppressed) = self.connected.pass() {
            tracing::info!(%server, suppressed, "connected to redis again");
        }
    }

    /// A connection stays open, and is not used until the server answers in time.
    pub fn connection_down(&self, server: &dyn Display, error: &str) {
        if let Some(suppressed) = self.down.pass() {
            tracing::warn!(%server, error, suppressed, "redis connection down, probing");
        }
    }

    pub fn connection_up(&self, server: &dyn Display) {
        if let Some(suppressed) = self.up.pass() {
            tracing::info!(%server, suppressed, "redis connection up again");
        }
    }

    pub fn no_slots(&self, error: &dyn Display) {
        if let Some(suppressed) = self.slots.pass() {
            tracing::warn!(%error, suppressed, "cannot read redis cluster slots, retrying");
        }
    }

    /// Slots that move to a new node fail meanwhile.
    pub fn no_nodes(&self, error: &dyn Display) {
        if let Some(suppressed) = self.nodes.pass() {
            tracing::warn!(
                %error, suppressed,
                "cannot list redis cluster nodes: allow the user the command CLUSTER NODES"
            );
        }
    }

    /// A node redirected to an address that the cluster does not list.
    pub fn redirect_refused(&self, server: &Endpoint, target: &Endpoint) {
        if let Some(suppressed) = self.redirect.pass() {
            tracing::warn!(
                %server, %target, suppressed,
                "redis redirect to an address outside the cluster refused"
            );
        }
    }

    /// Warns once of a server that may drop states before they expire.
    pub fn eviction_policy(&self, server: &Endpoint, about: &About) {
        let evicts = about.max_memory > 0 && about.policy != "noeviction";
        if evicts && !self.policy_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %server,
                policy = about.policy,
                "redis evicts keys when its memory is full, and their limits start over: set \
                 maxmemory-policy to noeviction, and provide enough memory"
            );
        }
    }

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
