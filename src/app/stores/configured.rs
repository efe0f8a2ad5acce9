//! The store that the settings name: the only place that distinguishes kinds of stores.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use weir_common::clock::SystemClock;
use weir_limit::{KeyState, Micros, Plan};
use weir_redis::RedisStore;
use weir_store::disk::DiskStore;
use weir_store::guard::Guard;
use weir_store::local::Local;
use weir_store::memory::MemoryStore;
use weir_store::{Answers, Batch, Operations, StateKey, States, Store, StoreError};

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
        budget: Duration,
    ) -> Result<KeyState, StoreError> {
        dispatch!(self, store => store.read(key, spans, budget).await)
    }

    fn read_local(&self, key: StateKey<'_>) -> Option<(Arc<Plan>, KeyState)> {
        dispatch!(self, store => store.read_local(key))
    }

    async fn reset(&self, key: StateKey<'_>, budget: Duration) -> Result<(), StoreError> {
        dispatch!(self, store => store.reset(key, budget).await)
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
