//! Declares the settings `store`: where counters are kept, what happens when that fails, and how to connect to Redis.

use std::path::PathBuf;
use std::time::Duration;

use super::tls::ClientFileSettings;
use crate::settings::format::{AutoOrDuration, Int, Secret};
use crate::settings::group::{choices, group};
use weir_common::failure::OnStoreFailure;
use weir_common::named_enum;
use weir_redis::ClockSource;

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum StoreKind, name {
        Memory = "memory",
        Disk = "disk",
        Redis = "redis",
    }
}

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TopologyKind, name {
        Single = "single",
        Sentinel = "sentinel",
        Cluster = "cluster",
        Proxy = "proxy",
    }
}

choices!(StoreKind, OnStoreFailure, TopologyKind, ClockSource);

group! {
    /// Where counters are kept.
    StoreSettings {
        /// Where counters are kept: in this process alone (`memory`), also on its disk, so that they
        /// survive restarts (`disk`), or in Redis, which replicas share.
        kind: StoreKind = "memory";
        /// Time limit for the store in one request. `auto`: what the caller's `grpc-timeout` leaves,
        /// less 3 ms, at most 50 ms; 15 ms for callers without one. A duration: that long, or the
        /// caller's `grpc-timeout` less 3 ms if that is shorter.
        budget: AutoOrDuration = "auto";
        /// The decision when the store fails (Redis does not answer, or counters are not loaded from
        /// disk yet): `error` leaves it to Envoy; `allow` and `deny` apply to
        /// every request; `local` enforces this replica's share of the limits, in memory. A domain
        /// can override it with on_store_failure.
        on_failure: OnStoreFailure = "error";
        /// Replicas that share the limits while each counts separately, with on_failure = local.
        replicas: Int<u32, 1, 1_000_000> = "1";
        /// How long a known denial is repeated without a call to Redis; 0: never.
        deny_locally_for: Duration = "250ms";
        /// How long a lease lasts, at most 1s: a replica charges hits of a hot key in Redis before they are
        /// asked for; 0: never.
        leases_for: Duration = "100ms";
        group memory: MemorySettings;
        group disk: DiskSettings;
        group redis: RedisSettings;
    }
}

group! {
    /// The disk store, which counts in memory as the memory store does.
    DiskSettings {
        /// Directory that keeps counters over a restart, with kind = disk. It is created if it does not
        /// exist. One process can use it at a time.
        path: Option<PathBuf> = "";
        /// How often changed counters are written; a crash loses the hits since then. 10ms to 1h.
        sync: Duration = "1s";
    }
}

group! {
    /// The memory store.
    MemorySettings {
        /// Maximum number of keys; beyond it, the least valuable keys are evicted. Open reservations, of up
        /// to 64 bytes each, may be an eighth as many; beyond it, the first to lapse are evicted and stay
        /// charged.
        max_keys: Int<usize, 1, 1_099_511_627_776> = "10_000_000";
    }
}

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
