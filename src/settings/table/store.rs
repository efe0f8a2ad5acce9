//! `store`: where counters are kept, and what happens when that fails.

use std::path::PathBuf;
use std::time::Duration;

use super::redis::RedisSettings;
use crate::settings::format::{AutoOrDuration, Int};
use crate::settings::group::{choices, group};
use weir_common::failure::OnStoreFailure;
use weir_common::named_enum;

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum StoreKind, name {
        Memory = "memory",
        Disk = "disk",
        Redis = "redis",
    }
}

choices!(StoreKind, OnStoreFailure);

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
