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
pub type Guarded = Guard<DenyLocally<Instances, Clock>, Clock>;

/// Memory or Redis.
#[derive(Debug)]
pub enum Configured {
    Memory(MemoryStore<Clock>),
    Redis(Box<Guarded>),
}

/// One Redis, or two, of which one counts limits of a second.
#[derive(Debug)]
pub enum Instances {
    One(RedisStore),
    Two(Box<PerSecond<RedisStore>>),
}

impl Configured {
    pub fn memory(&self) -> Option<&MemoryStore<Clock>> {
        match self {
            Configured::Memory(memory) => Some(memory),
            Configured::Redis(_) => None,
        }
    }

    pub fn redis(&self) -> Option<&Guarded> {
        match self {
            Configured::Memory(_) => None,
            Configured::Redis(redis) => Some(redis),
        }
    }

    /// Ready when the store has answered for the first time.
    pub async fn answered(&self) {
        match self.redis().map(|guard| guard.inner().inner()) {
            None => {}
            Some(Instances::One(redis)) => redis.answered().await,
            Some(Instances::Two(two)) => {
                tokio::join!(two.main().answered(), two.per_second().answered());
            }
        }
    }
}

impl Instances {
    /// Each with its name.
    pub fn each(&self) -> Vec<(&'static str, &RedisStore)> {
        match self {
            Instances::One(redis) => vec![("main", redis)],
            Instances::Two(two) => vec![("main", two.main()), ("per_second", two.per_second())],
        }
    }
}

impl Store for Instances {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        match self {
            Instances::One(redis) => redis.charge(batch, answers).await,
            Instances::Two(two) => two.charge(batch, answers).await,
        }
    }
}

impl Store for Configured {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        match self {
            Configured::Memory(memory) => memory.charge_now(batch, answers),
            Configured::Redis(redis) => redis.charge(batch, answers).await,
        }
    }

    fn at_once(&self) -> bool {
        self.memory().is_some()
    }
}
