//! What all connections of a store share.

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::counts::RedisCounts;
use super::log::RedisLog;
use super::options::Options;

/// What all connections of a store share.
#[derive(Debug)]
pub(super) struct RedisContext {
    pub options: Options,
    pub counts: RedisCounts,
    /// Notified when a connection is up or fails for the first time, and when a cluster's nodes change.
    pub changed: watch::Sender<()>,
    pub log: RedisLog,
    /// When a connection that was down or slow last came up.
    pub recovered: Mutex<Option<Instant>>,
}

impl RedisContext {
    pub fn new(options: Options) -> RedisContext {
        RedisContext {
            options,
            counts: RedisCounts::default(),
            changed: watch::Sender::new(()),
            log: RedisLog::default(),
            recovered: Mutex::default(),
        }
    }
}
