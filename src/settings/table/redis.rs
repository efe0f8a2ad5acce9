//! `store.redis`: how to connect to Redis, and to the Redis of limits per second.

use std::path::PathBuf;
use std::time::Duration;

use super::tls::ClientFileSettings;
use crate::settings::format::Secret;
use crate::settings::group::{choices, group};
use weir_common::named_enum;
use weir_redis::ClockSource;

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TopologyKind, name {
        Single = "single",
        Sentinel = "sentinel",
        Cluster = "cluster",
        Proxy = "proxy",
    }
}

choices!(TopologyKind, ClockSource);

group! {
    /// A Redis.
    ServerSettings {
        /// How the servers are organized. `proxy`: several behind Envoy's redis_proxy or twemproxy.
        topology: TopologyKind = "single";
        /// Address of Redis: host:port, redis://user:password@host:port/0 with a database number,
        /// rediss://… for TLS, or the path of a Unix socket. Several with commas: the sentinels, or some
        /// nodes of a cluster. That of store.redis makes Redis the store; that of store.redis.per_second is
        /// for limits per second alone.
        url: Option<String> = "";
        /// User name; empty: Redis's default user.
        username: Option<String> = "";
        /// Password.
        password: Option<Secret> = "";
        /// File with the password, read for each new connection. It may be missing at first.
        password_file: Option<PathBuf> = "";
        /// Timeout for connecting and logging in.
        connect_timeout: Duration = "1s";
    }
}

group! {
    /// The Redis that keeps the counters.
    RedisSettings {
        flat server: ServerSettings;
        /// Prefix of all keys, without braces.
        key_prefix: String = "weir:";
        /// The clock that counts: `server` is that of Redis; `caller` is that of each replica, for servers
        /// that do not let scripts read the time.
        clock: ClockSource = "server";
        // Longer than the occasional slow round trips of a busy cluster, which fail no request.
        /// A connection with a slower round trip is not used until the server answers a PING within this
        /// time.
        slow_after: Duration = "20ms";
        group tls: RedisTlsSettings;
        group sentinel: SentinelSettings;
        group per_second: PerSecondSettings;
    }
}

group! {
    /// The Redis that keeps the counters of limits per second, if they have their own.
    PerSecondSettings {
        flat server: ServerSettings;
        group tls: TlsSwitch;
        group sentinel: SentinelSettings;
    }
}

group! {
    /// Whether there is TLS.
    TlsSwitch {
        /// Whether connections are encrypted; rediss:// means the same.
        enabled: bool = "false";
    }
}

group! {
    /// TLS to Redis. The files are also those of the Redis of limits per second, as in the reference.
    RedisTlsSettings {
        flat switch: TlsSwitch;
        flat files: ClientFileSettings;
        /// Whether a valid certificate for another host is accepted.
        skip_hostname_verification: bool = "false";
    }
}

group! {
    /// The sentinels.
    SentinelSettings {
        /// The name of the master at the sentinels.
        master_name: String = "";
        /// User name for the sentinels.
        username: Option<String> = "";
        /// Password for the sentinels.
        password: Option<Secret> = "";
        /// File with the password for the sentinels, read for each new connection. It may be missing at first.
        password_file: Option<PathBuf> = "";
    }
}
