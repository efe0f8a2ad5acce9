//! The register of replicas: a hash in one slot, which expires when no replica announces itself.
//!
//! One command announces a replica and counts all. It goes over a connection that is open for charges.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{Cmd, RedisError};

use super::connection::SHORT_BYTES;
use super::options::{Clock, Options};
use super::{RedisStore, key};
use crate::StoreError;
use crate::replicas::{ANNOUNCED_FOR, AnnounceError, Announced, ReplicaRegister};
use weir_common::random::random_bytes;

/// The timeout of withdrawing: nothing depends on it, and the process waits for it to end.
const WITHDRAW_TIMEOUT: Duration = Duration::from_millis(500);

const SCRIPT: &str = include_str!("lua/replicas.lua");

/// Draws the id of a replica: a process that starts again is another replica until its old announcement
/// expires.
pub(super) fn random_id() -> String {
    format!("{:016x}", u64::from_le_bytes(random_bytes()))
}

/// Returns the name of the hash. No state has it: those of states have a shape after the braces.
fn register_key(options: &Options) -> String {
    format!("{}{{replicas}}", options.prefix)
}

impl RedisStore {
    fn register_slot(&self) -> u16 {
        key::slot(register_key(&self.shared.options).as_bytes())
    }

    /// Returns the command that announces this replica, or withdraws it if `time` is zero.
    ///
    /// The text is sent each time: it is short, and no second command is needed where the server does not know
    /// its hash.
    fn register_command(&self, time: Duration) -> Cmd {
        let options = &self.shared.options;
        let now = match options.clock {
            Clock::Server => 0,
            Clock::Caller => options.wall.now(),
        };
        let milliseconds = time.as_millis() as u64;
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg(register_key(options));
        command.arg(&self.replica_id).arg(now).arg(milliseconds);
        command
    }

    async fn announce_replica(&self) -> Result<Announced, AnnounceError> {
        let command = self.register_command(ANNOUNCED_FOR);
        let ask = |mut link| async move { command.query_async(&mut link).await };
        let asked = self.ask_server(self.register_slot(), (1, SHORT_BYTES), ask).await?;
        let (replicas, age_ms): (u32, u64) = asked.map_err(|error| announce_error(&error))?;
        Ok(Announced { replicas, register_age: Duration::from_millis(age_ms) })
    }

    async fn withdraw_replica(&self) {
        let command = self.register_command(Duration::ZERO);
        // At the end of the process, connections of the threads that served are closed.
        let sent =
            self.send_directly(self.register_slot(), &command, SHORT_BYTES, WITHDRAW_TIMEOUT);
        if let Err(error) = sent.await {
            tracing::debug!(%error, "other replicas count this one until its announcement expires");
        }
    }
}

/// Errors of a server that may accept the command later. Redis 6 wraps them in errors of the script.
const PASSING: [&str; 12] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
];

/// Returns what an error means for later announcements: other replies of the server, such as that the user has
/// no permission or that the key holds something else, stay.
pub(super) fn announce_error(error: &RedisError) -> AnnounceError {
    let text = error.to_string();
    let is_word = |char: char| char.is_ascii_alphanumeric();
    let has = |code: &str| text.split(|char| !is_word(char)).any(|word| word == code);
    let is_passing = |code: &str| PASSING.iter().any(|it| *it == code || has(it));
    match error.code() {
        Some(code) if !is_passing(code) => AnnounceError::Refused(text),
        _ => StoreError::Unavailable.into(),
    }
}

impl ReplicaRegister for RedisStore {
    fn tried(&self) -> BoxFuture<'_, ()> {
        self.server_tried(self.register_slot()).boxed()
    }

    fn announce(&self) -> BoxFuture<'_, Result<Announced, AnnounceError>> {
        self.announce_replica().boxed()
    }

    fn withdraw(&self) -> BoxFuture<'_, ()> {
        self.withdraw_replica().boxed()
    }
}
