//! `store.redis`: how to connect to Redis, and to the Redis of limits per second.

use std::path::PathBuf;
use std::time::Duration;

use super::group;
use crate::settings::format::{Choice, Secret};
use weir_store::redis::Clock;

/// How the servers are organized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyKind {
    Single,
    Sentinel,
    Cluster,
    Proxy,
}

impl Choice for TopologyKind {
    const CHOICES: &'static [(&'static str, TopologyKind)] = &[
        ("single", TopologyKind::Single),
        ("sentinel", TopologyKind::Sentinel),
        ("cluster", TopologyKind::Cluster),
        ("proxy", TopologyKind::Proxy),
    ];
}

impl Choice for Clock {
    const CHOICES: &'static [(&'static str, Clock)] =
        &[("server", Clock::Server), ("caller", Clock::Caller)];
}

group! {
    /// The Redis that keeps the counters.
    RedisSettings "store.redis" {
        /// How the servers are organized. `proxy`: several behind Envoy's redis_proxy or twemproxy.
        topology: TopologyKind = "single", reference ["REDIS_TYPE"];
        /// Address of Redis: host:port, redis://user:password@host:port/0 with a database number,
        /// rediss://… for TLS, or the path of a Unix socket. Several with commas: the sentinels, or some
        /// nodes of a cluster. Setting it makes Redis the store.
        url: Option<String> = "", reference ["REDIS_URL"];
        /// User name; empty: Redis's default user.
        username: Option<String> = "", reference ["REDIS_AUTH"];
        /// Password.
        password: Option<Secret> = "", reference ["REDIS_AUTH"];
        /// File with the password, read for each new connection. It may be missing at first.
        password_file: Option<PathBuf> = "", reference ["REDIS_AUTH_FILE"];
        /// Prefix of all keys, without braces.
        key_prefix: String = "weir:", reference ["CACHE_KEY_PREFIX"];
        /// The clock that counts: `server` is that of Redis; `caller` is that of each replica, for servers
        /// that do not let scripts read the time.
        clock: Clock = "server";
        /// Timeout for connecting and logging in.
        connect_timeout: Duration = "1s", reference ["REDIS_TIMEOUT"];
        // Longer than the occasional slow round trips of a busy cluster, which fail no request.
        /// A connection with a slower round trip is not used until the server answers a PING within this
        /// time.
        slow_after: Duration = "20ms";
    }
    groups { tls: RedisTlsSettings; sentinel: SentinelSettings; per_second: PerSecondSettings; }
}

group! {
    /// TLS to Redis.
    RedisTlsSettings "store.redis.tls" {
        /// Whether connections are encrypted; rediss:// means the same.
        enabled: bool = "false", reference ["REDIS_TLS"];
        /// PEM file with the CA certificates to trust; empty: the system's.
        ca: Option<PathBuf> = "", reference ["REDIS_TLS_CACERT"];
        /// PEM file with the client certificate.
        cert: Option<PathBuf> = "", reference ["REDIS_TLS_CLIENT_CERT"];
        /// PEM file with the key of the client certificate.
        key: Option<PathBuf> = "", reference ["REDIS_TLS_CLIENT_KEY"];
        /// Whether a valid certificate for another host is accepted.
        skip_hostname_verification: bool = "false", reference ["REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"];
    }
}

group! {
    /// The sentinels.
    SentinelSettings "store.redis.sentinel" {
        /// The name of the master at the sentinels.
        master_name: String = "", reference ["REDIS_URL"];
        /// User name for the sentinels.
        username: Option<String> = "", reference ["REDIS_SENTINEL_AUTH"];
        /// Password for the sentinels.
        password: Option<Secret> = "", reference ["REDIS_SENTINEL_AUTH"];
        /// File with the password for the sentinels, read for each new connection. It may be missing at first.
        password_file: Option<PathBuf> = "";
    }
}

group! {
    /// The Redis that keeps the counters of limits per second, if they have their own.
    PerSecondSettings "store.redis.per_second" {
        /// How the servers are organized.
        topology: TopologyKind = "single", reference ["REDIS_PERSECOND_TYPE"];
        /// A separate Redis for limits per second, as store.redis.url; empty: store.redis.url.
        url: Option<String> = "", reference ["REDIS_PERSECOND_URL"];
        /// User name; empty: Redis's default user.
        username: Option<String> = "", reference ["REDIS_PERSECOND_AUTH"];
        /// Password.
        password: Option<Secret> = "", reference ["REDIS_PERSECOND_AUTH"];
        /// File with the password, read for each new connection. It may be missing at first.
        password_file: Option<PathBuf> = "", reference ["REDIS_PERSECOND_AUTH_FILE"];
        /// Timeout for connecting and logging in.
        connect_timeout: Duration = "1s", reference ["REDIS_PERSECOND_TIMEOUT"];
    }
    groups { tls: PerSecondTlsSettings; sentinel: PerSecondSentinelSettings; }
}

group! {
    /// TLS to the Redis of limits per second.
    PerSecondTlsSettings "store.redis.per_second.tls" {
        /// Whether connections are encrypted; rediss:// means the same. The other settings of store.redis.tls
        /// apply to both.
        enabled: bool = "false", reference ["REDIS_PERSECOND_TLS"];
    }
}

group! {
    /// The sentinels of the Redis of limits per second.
    PerSecondSentinelSettings "store.redis.per_second.sentinel" {
        /// The name of the master at the sentinels.
        master_name: String = "", reference ["REDIS_PERSECOND_URL"];
        /// User name for the sentinels.
        username: Option<String> = "", reference ["REDIS_PERSECOND_SENTINEL_AUTH"];
        /// Password for the sentinels.
        password: Option<Secret> = "", reference ["REDIS_PERSECOND_SENTINEL_AUTH"];
        /// File with the password for the sentinels, read for each new connection. It may be missing at first.
        password_file: Option<PathBuf> = "";
    }
}
