//! Builds the store of the settings, which counts hits: memory, disk or Redis. No other file tells them apart. Disk and
//! Redis are wrapped in `Guard` (the policy when they fail), Redis also in `Local` (answers without a round trip).

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::net::tls::Identities;
use crate::settings::Settings;
use weir_common::clock::{BootClock, SystemClock};
use weir_common::error::SetupError;
use weir_common::threads::Failures;
use weir_limit::{KeyState, Micros, Plan};
use weir_redis::{RedisStore, Topology};
use weir_store::disk::{DiskStore, OpenError};
use weir_store::guard::{Guard, GuardOptions};
use weir_store::local::{Local, LocalOptions};
use weir_store::memory::MemoryStore;
use weir_store::{Answers, Batch, Grant, Operations, StateKey, States, Store, StoreError};

/// The most denials that are kept at a time, to repeat them without asking Redis. Each takes about 100 bytes.
const MAX_DENIALS: usize = 64 * 1024;

/// Makes the store of `settings`, by `clock`. It connects when it is first used; a store on disk is
/// loaded by a thread of its own. Adds the certificates that it presents to `identities`.
pub(super) fn make(
    settings: &Settings,
    clock: Clock,
    failures: &Failures,
    identities: &mut Identities,
) -> Result<ConfiguredStore, SetupError> {
    let (store, max_keys) = (&settings.store, *settings.store.memory.max_keys);
    let (on_failure, replicas) = (*store.on_failure, *store.replicas);
    let guard_options = GuardOptions { on_failure, replicas, max_keys };
    if let Some(options) = settings.disk_options() {
        let directory = options.path.display().to_string();
        let disk = DiskStore::open(clock.clone(), options, failures).map_err(setup_error)?;
        tracing::info!(directory, "weir counts on disk, each replica by itself");
        let guard = Guard::new(disk, clock, guard_options);
        return Ok(ConfiguredStore::Disk(Box::new(guard)));
    }
    let Some((redis, per_second)) = settings.redis_options() else {
        tracing::info!("weir counts in memory, each replica by itself");
        return Ok(ConfiguredStore::Memory(MemoryStore::new(clock, max_keys)));
    };
    redis.check()?;
    per_second.as_ref().map_or(Ok(()), |redis| redis.check())?;
    tracing::info!(
        servers = %redis.topology,
        per_second = per_second.as_ref().map(|redis| redis.topology.to_string()),
        "weir counts in redis, with all replicas that use it"
    );
    // Both have the same files.
    let tls =
        std::iter::once(&redis).chain(&per_second).find_map(|redis| redis.access.tls.as_ref());
    if let Some(tls) = tls {
        identities.present("redis", tls.certificates.clone());
    }
    if matches!(redis.topology, Topology::Proxy(_)) {
        tracing::warn!(
            "replicas share no controls and no lists of top keys: store.redis.topology is proxy"
        );
    }
    let redis = RedisStore::new(redis).with_per_second(per_second);
    let options = LocalOptions {
        deny_locally_for: *store.deny_locally_for,
        max_denials: MAX_DENIALS,
        leases_for: *store.leases_for,
    };
    let local = Local::new(redis, BootClock, options);
    let guard = Guard::new(local, clock, guard_options);
    Ok(ConfiguredStore::Redis(Box::new(guard)))
}

fn setup_error(error: OpenError) -> SetupError {
    match error {
        OpenError::Io(..) | OpenError::InUse(_) | OpenError::Unreadable(..) => {
            SetupError::Unavailable(error.to_string())
        }
        OpenError::Version(..) | OpenError::TooManyKeys(..) => {
            SetupError::Invalid(error.to_string())
        }
    }
}

type Clock = Arc<SystemClock>;

/// Redis: failures are answered by policy, denials are repeated locally, hot keys are served from leases,
/// and limits of one second may be counted separately.
type GuardedRedis = Guard<Local<RedisStore>, Clock>;

/// Memory and disk: until everything is loaded, charges are answered by policy.
type GuardedDisk = Guard<DiskStore<Clock>, Clock>;

#[derive(Debug)]
pub enum ConfiguredStore {
    Memory(MemoryStore<Clock>),
    Disk(Box<GuardedDisk>),
    Redis(Box<GuardedRedis>),
}

macro_rules! dispatch {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            ConfiguredStore::Memory($store) => $call,
            ConfiguredStore::Disk($store) => $call,
            ConfiguredStore::Redis($store) => $call,
        }
    };
}

impl ConfiguredStore {
    pub fn disk(&self) -> Option<&DiskStore<Clock>> {
        match self {
            ConfiguredStore::Disk(guard) => Some(guard.inner()),
            _ => None,
        }
    }

    /// Resolves with the error if counters cannot be loaded from disk.
    pub async fn load_error(&self) -> String {
        match self.disk() {
            Some(disk) => disk.load_error().await,
            None => pending().await,
        }
    }
}

impl Store for ConfiguredStore {
    #[inline]
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        match self {
            ConfiguredStore::Memory(store) => {
                store.start(batch, answers).map(|waiting| waiting.left_future().left_future())
            }
            // In a box, so that the futures of others stay small.
            ConfiguredStore::Disk(store) => {
                let waiting = store.start(batch, answers);
                waiting.map(|waiting| Box::pin(waiting).right_future().left_future())
            }
            ConfiguredStore::Redis(store) => {
                store.start(batch, answers).map(FutureExt::right_future)
            }
        }
    }
}

impl States for ConfiguredStore {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        dispatch!(self, store => store.read(key, spans, timeout).await)
    }

    fn read_local(&self, key: StateKey<'_>) -> Option<(Arc<Plan>, KeyState)> {
        dispatch!(self, store => store.read_local(key))
    }

    async fn reset(&self, key: StateKey<'_>, timeout: Duration) -> Result<(), StoreError> {
        dispatch!(self, store => store.reset(key, timeout).await)
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        dispatch!(self, store => store.grant(batch).await)
    }
}

impl Operations for ConfiguredStore {
    fn inner(&self) -> Option<&dyn Operations> {
        Some(match self {
            ConfiguredStore::Memory(store) => store,
            ConfiguredStore::Disk(store) => &**store,
            ConfiguredStore::Redis(store) => &**store,
        })
    }

    /// Counters on disk are waited for whatever the policy: until then all limits start over.
    fn is_ready(&self) -> bool {
        match self.disk() {
            Some(disk) => disk.is_ready(),
            None => dispatch!(self, store => store.is_ready()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_directory_of_another_format_or_size_needs_another_setting() {
        let path = PathBuf::from("/counters");
        for error in [OpenError::Version(path.clone(), 9), OpenError::TooManyKeys(path.clone(), 5)]
        {
            assert!(matches!(setup_error(error), SetupError::Invalid(_)));
        }
        assert!(matches!(setup_error(OpenError::InUse(path)), SetupError::Unavailable(_)));
    }
}
