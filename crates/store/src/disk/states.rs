//! Reads and resets single keys, once everything is loaded.

use std::time::Duration;

use tokio::time::timeout;

use super::DiskStore;
use crate::{StateKey, States, StoreError};
use weir_common::clock::Clock;
use weir_limit::{KeyState, Micros};

impl<C: Clock> DiskStore<C> {
    async fn loaded_within(&self, budget: Duration) -> Result<(), StoreError> {
        if self.status.is_loaded() {
            return Ok(());
        }
        let loaded = timeout(budget, self.status.wait_until_loaded()).await;
        loaded.map_err(|_| StoreError::Unavailable)
    }
}

impl<C: Clock> States for DiskStore<C> {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        budget: Duration,
    ) -> Result<KeyState, StoreError> {
        self.loaded_within(budget).await?;
        Ok(self.memory.read_now(key, spans))
    }

    async fn reset(&self, key: StateKey<'_>, budget: Duration) -> Result<(), StoreError> {
        self.loaded_within(budget).await?;
        self.memory.reset_now(key);
        Ok(())
    }
}
