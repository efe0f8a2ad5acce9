//! Why an attempt to connect to a Redis server failed; log lines have these texts.

use std::time::Duration;

use crate::refusal::{store_error, words_of};
use weir_store::StoreError;

const SET_PROXY: &str = "set store.redis.topology to proxy (REDIS_TYPE=PROXY)";

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot read {0}: {1}")]
    File(String, std::io::Error),
    #[error("{0}")]
    Certificates(String),
    #[error("{0}")]
    Redis(#[from] redis::RedisError),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("redis {0} is too old: weir needs 6.0 or later")]
    TooOld(String),
    #[error("the server is a read-only replica")]
    Replica,
    #[error("no sentinel knows the master {0:?}")]
    NoMaster(String),
    #[error("no node reports the slots of the cluster")]
    NoSlots,
    #[error(
        "the server closed the connection at {0} ({1}), as Redis in protected mode does without a password; behind a \
         proxy such as twemproxy, {SET_PROXY}"
    )]
    Closed(&'static str, redis::RedisError),
    #[error("this server's Lua lacks struct: weir needs Redis 6.0 or later, or Valkey")]
    NoStruct,
    #[error("the server runs no scripts ({0}): weir needs Redis 6.0 or later, or Valkey")]
    NoScripts(String),
    #[error(
        "the server has no command TIME ({0}): set store.redis.clock = \"caller\", or remove rename-command TIME"
    )]
    NoTime(String),
    #[error(
        "TIME has more than a second of microseconds, as that of Envoy's redis_proxy: {SET_PROXY}"
    )]
    WrongTime,
    #[error("INFO reports a cluster, but CLUSTER SLOTS is refused, as by a proxy: {SET_PROXY}")]
    NoSlotsOfProxy,
    #[error(
        "this is a node of a Redis Cluster: set store.redis.topology to cluster (REDIS_TYPE=CLUSTER)"
    )]
    Cluster,
    #[error("this is a Sentinel: set store.redis.topology to sentinel (REDIS_TYPE=SENTINEL)")]
    Sentinel,
    #[error(
        "keys with the same text in braces are on several servers: set enable_hashtagging: true in Envoy's \
         redis_proxy, or hash_tag: \"{{}}\" in twemproxy"
    )]
    HashTags,
    #[error(
        "a server of the proxy redirects, as nodes of a Redis Cluster do: set store.redis.topology to cluster \
         and the address of a node, or use Envoy's cluster type envoy.clusters.redis"
    )]
    Redirects,
}

impl ConnectError {
    /// Returns the error of charges that wait for the connection.
    pub fn store_error(&self) -> StoreError {
        match self {
            ConnectError::Replica => StoreError::ReadOnly,
            ConnectError::Redis(error) => store_error(&words_of(error)),
            _ => StoreError::Unavailable,
        }
    }
}
