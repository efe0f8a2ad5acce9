//! Reads and resets the states of single keys, for operators (`weir state`, `weir reset`).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::charge::{Charge, Key, Role};
use crate::error::StoreError;
use crate::store::Store;
use weir_limit::{KeyState, Micros, Op, Plan};

/// A key and its plan (the limits of its rule), as in a [`Charge`] of it.
#[derive(Clone, Copy, Debug)]
pub struct StateKey<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The limits that count for it.
    pub plan: &'a Arc<Plan>,
    /// Whether the key's domain has `charge: together`.
    pub together: bool,
    /// The id whose reservation is read, too.
    pub id: Option<&'a str>,
}

impl<'a> StateKey<'a> {
    pub(super) fn charge(&self) -> Charge<'a> {
        let StateKey { key, plan, id, .. } = *self;
        Charge { key, plan, op: Op::Take(1), hold: id, role: Role::Enforced }
    }
}

/// A store whose states can be read and reset. Not on the path of a request.
pub trait States: Store {
    /// Reads a key's state with what its id has reserved, and counts the hits of the last `spans`. Changes neither the
    /// state nor its expiry. Ends within `timeout`.
    ///
    /// # Errors
    ///
    /// The store cannot be reached in time, or the state cannot be read. No policy replaces an error.
    fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> impl Future<Output = Result<KeyState, StoreError>> + Send;

    /// Returns what the policy `local` has counted for a key in place of a store that fails, and its share of the plan;
    /// none if it has counted nothing.
    fn read_local(&self, _key: StateKey<'_>) -> Option<(Arc<Plan>, KeyState)> {
        None
    }

    /// Deletes a key's state, whatever it is: the next charge starts over. What ids have reserved can be settled, and
    /// returns nothing: the time of the reset is kept until that has lapsed. Hits in flight of a concurrency limit are
    /// no longer counted. Ends within `timeout`.
    ///
    /// # Errors
    ///
    /// The store cannot be reached in time, or does not accept writes. Unless the error is a
    /// [refusal](StoreError::is_refusal), the state may have been deleted nevertheless.
    fn reset(
        &self,
        key: StateKey<'_>,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}
