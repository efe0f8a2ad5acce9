//! Makes the store that settings ask for.

use std::sync::Arc;

use crate::clock::SystemClock;
use crate::settings::Settings;
use crate::store::configured::{ConfiguredStore, RedisInstances};
use crate::store::deny_locally::DenyLocally;
use crate::store::guard::Guard;
use crate::store::memory::MemoryStore;
use crate::store::per_second::PerSecond;
use crate::store::redis::RedisStore;

/// Denials known at once; some 100 bytes each.
const KNOWN_DENIALS: usize = 64 * 1024;

/// The store of `settings`, by `clock`; connects only when it is first asked.
pub(super) fn make(settings: &Settings, clock: Arc<SystemClock>) -> ConfiguredStore {
    let (store, max_keys) = (&settings.store, *settings.store.memory.max_keys);
    let Some((redis, per_second)) = settings.redis_options() else {
        return ConfiguredStore::Memory(MemoryStore::new(clock, max_keys));
    };
    let redis = RedisStore::new(redis);
    let instances = match per_second {
        None => RedisInstances::One(redis),
        Some(second) => {
            RedisInstances::Two(Box::new(PerSecond::new(redis, RedisStore::new(second))))
        }
    };
    let deny_for = *store.deny_locally_for;
    let known = if deny_for.is_zero() { 0 } else { KNOWN_DENIALS };
    let denying = DenyLocally::new(instances, clock.clone(), deny_for, known);
    let guard = Guard::new(denying, clock, *store.on_failure, *store.replicas, max_keys);
    ConfiguredStore::Redis(Box::new(guard))
}
