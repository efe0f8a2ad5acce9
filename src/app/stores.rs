//! Makes the store that the settings name.

mod configured;
mod redis;

use std::sync::Arc;

pub(super) use self::configured::ConfiguredStore;
use crate::clock::SystemClock;
use crate::settings::{Settings, Store};
use crate::store::deny_locally::DenyLocally;
use crate::store::guard::Guard;
use crate::store::memory::MemoryStore;
use crate::store::per_second::PerSecond;
use crate::store::redis::RedisStore;

/// Denials cached at a time, about 100 bytes each.
const CACHED_DENIALS: usize = 64 * 1024;

/// Makes the store of `settings`, by `clock`. It connects when it is first used.
pub(super) fn make(settings: &Settings, clock: Arc<SystemClock>) -> ConfiguredStore {
    let Store { redis, per_second, on_failure, replicas, deny_locally_for, max_keys, .. } =
        &settings.store;
    let Some(redis) = redis else {
        return ConfiguredStore::Memory(MemoryStore::new(clock, *max_keys));
    };
    // One for each serving thread, and one for the API over HTTP.
    let threads = settings.threads() + 1;
    let store = |redis| RedisStore::new(redis::options(redis, settings, threads));
    let stores = PerSecond::new(store(redis), per_second.as_ref().map(store));
    let cached = if deny_locally_for.is_zero() { 0 } else { CACHED_DENIALS };
    let denying = DenyLocally::new(stores, clock.clone(), *deny_locally_for, cached);
    let guard = Guard::new(denying, clock, *on_failure, *replicas, *max_keys);
    ConfiguredStore::Redis(Box::new(guard))
}
