//! `store`: where counters are kept, and what happens when that fails.

use std::time::Duration;

use super::{RedisSettings, group};
use crate::failure::OnStoreFailure;
use crate::settings::format::{AutoOrDuration, Choice, Int};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    Memory,
    Redis,
}

impl Choice for StoreKind {
    const CHOICES: &'static [(&'static str, StoreKind)] =
        &[("memory", StoreKind::Memory), ("redis", StoreKind::Redis)];
}

impl Choice for OnStoreFailure {
    const CHOICES: &'static [(&'static str, OnStoreFailure)] = &[
        (OnStoreFailure::Error.name(), OnStoreFailure::Error),
        (OnStoreFailure::Allow.name(), OnStoreFailure::Allow),
        (OnStoreFailure::Deny.name(), OnStoreFailure::Deny),
        (OnStoreFailure::Local.name(), OnStoreFailure::Local),
    ];
}

group! {
    /// Where counters are kept.
    StoreSettings "store" {
        /// Where counters are kept.
        kind: StoreKind = "memory", reference ["BACKEND_TYPE"];
        /// Time limit for the store in one request. `auto`: what the caller's `grpc-timeout` leaves,
        /// less 3 ms, at most 50 ms; 15 ms for callers without one. A duration: that long, or the
        /// caller's `grpc-timeout` less 3 ms if that is shorter.
        budget: AutoOrDuration = "auto";
        /// The decision when the store fails: `error` leaves it to Envoy; `allow` and `deny` apply to
        /// every request; `local` enforces this replica's share of the limits, in memory. A domain
        /// can override it with on_store_failure.
        on_failure: OnStoreFailure = "error";
        /// Replicas that share the limits while each counts separately, with on_failure = local.
        replicas: Int<u32, 1, 1_000_000> = "1";
        /// How long a known denial is repeated without a call to Redis; 0: never.
        deny_locally_for: Duration = "250ms";
    }
    groups { memory: MemorySettings; redis: RedisSettings; }
}

group! {
    /// The memory store.
    MemorySettings "store.memory" {
        /// Maximum number of keys; beyond it, the least valuable keys are evicted.
        max_keys: Int<usize, 1, 1_099_511_627_776> = "10_000_000";
    }
}
