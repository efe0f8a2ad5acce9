//! The store that the settings ask for, with what stands around it.

use std::sync::Arc;

use super::deny_locally::DenyLocally;
use super::guard::Guard;
use super::memory::MemoryStore;
use super::per_second::PerSecond;
use super::redis::RedisStore;
use super::{Answers, Batch, Store};
use crate::clock::SystemClock;

/// The clock of everything here.
pub type Clock = Arc<SystemClock>;

/// Counting in Redis: denials repeated locally, failures answered by policy.
pub type GuardedRedis = Guard<DenyLocally<RedisInstances, Clock>, Clock>;

/// Memory or Redis.
#[derive(Debug)]
pub enum ConfiguredStore {
    Memory(MemoryStore<Clock>),
    Redis(Box<GuardedRedis>),
}

/// One Redis, or two, of which one counts limits of a second.
#[derive(Debug)]
pub enum RedisInstances {
    One(RedisStore),
    Two(Box<PerSecond<RedisStore>>),
}

impl ConfiguredStore {
    pub fn memory(&self) -> Option<&MemoryStore<Clock>> {
        match self {
            ConfiguredStore::Memory(memory) => Some(memory),
            ConfiguredStore::Redis(_) => None,
        }
    }

    pub fn redis(&self) -> Option<&GuardedRedis> {
        match self {
            ConfiguredStore::Memory(_) => None,
            ConfiguredStore::Redis(redis) => Some(redis),
        }
    }

    /// Ready when the store has answered for the first time.
    pub async fn answered(&self) {
        match self.redis().map(|guard| guard.inner().inner()) {
            None => {}
            Some(RedisInstances::One(redis)) => redis.answered().await,
            Some(RedisInstances::Two(two)) => {
                tokio::join!(two.main().answered(), two.per_second().answered());
            }
        }
    }
}

impl RedisInstances {
    /// Each with its name.
    pub fn each(&self) -> Vec<(&'static str, &RedisStore)> {
        match self {
            RedisInstances::One(redis) => vec![("main", redis)],
            RedisInstances::Two(two) => {
                vec![("main", two.main()), ("per_second", two.per_second())]
            }
        }
    }
}

impl Store for RedisInstances {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        match self {
            RedisInstances::One(redis) => redis.charge(batch, answers).await,
            RedisInstances::Two(two) => two.charge(batch, answers).await,
        }
    }

    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        match self {
            RedisInstances::One(redis) => redis.try_charge(batch, answers),
            RedisInstances::Two(two) => two.try_charge(batch, answers),
        }
    }

    fn is_immediate(&self) -> bool {
        match self {
            RedisInstances::One(redis) => redis.is_immediate(),
            RedisInstances::Two(two) => two.is_immediate(),
        }
    }
}

impl Store for ConfiguredStore {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        match self {
            ConfiguredStore::Memory(memory) => memory.charge_now(batch, answers),
            ConfiguredStore::Redis(redis) => redis.charge(batch, answers).await,
        }
    }

    #[inline]
    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        match self {
            ConfiguredStore::Memory(memory) => memory.try_charge(batch, answers),
            ConfiguredStore::Redis(redis) => redis.try_charge(batch, answers),
        }
    }

    fn is_immediate(&self) -> bool {
        match self {
            ConfiguredStore::Memory(memory) => memory.is_immediate(),
            ConfiguredStore::Redis(redis) => redis.is_immediate(),
        }
    }
}
