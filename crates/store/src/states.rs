//! Single keys, not on the path of a request: operators read and reset their states, and clients are granted hits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::charge::{Answer, Batch, Charge, Key, Role};
use crate::error::StoreError;
use crate::store::Store;
use weir_limit::{Decision, KeyState, Micros, Op, Plan, State, Undo};

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

/// Hits of a key that a client may spend without asking again.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The decision of the charge: `granted` hits, and what the limits have left after it.
    pub decision: Decision,
    /// What returns the granted hits, to be undone last to first. Empty if nothing was granted, or if the store did not
    /// charge the hits itself: the source of the decision is not [`Store`](weir_limit::Source::Store).
    pub undos: Vec<Undo>,
    /// The store's time at which it charged.
    pub now: Micros,
}

impl Grant {
    /// Charges the state of a key in a store. Denied hits are not returned, even where a limit charges them.
    pub fn charge(plan: &Plan, state: &mut State, now: Micros, op: Op) -> Grant {
        let (outcome, mut undos) = plan.charge_undoable(state, now, op);
        let decision = outcome.decision;
        if decision.granted == 0 {
            undos.clear();
        }
        Grant { decision, undos, now }
    }

    pub(crate) fn answer(granted: &Result<Grant, StoreError>) -> Answer {
        match granted {
            Ok(grant) => Ok(grant.decision.clone()),
            Err(failed) => Err(*failed),
        }
    }
}

/// A store whose states can be read and reset, and which grants hits. Not on the path of a request.
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

    /// Charges the one charge of a batch, as [`charge`](Store::charge) does, and returns also what undoes it and the
    /// time of the store. Its operation is [`UpTo`](Op::UpTo). It is charged for itself, without a hold:
    /// [`together`](Batch::together) is false, and [`hold`](Charge::hold) is none.
    ///
    /// If the future is dropped before it resolves, the hits stay charged, unless they were not sent yet.
    ///
    /// # Errors
    ///
    /// Those of the charge. With a failure policy, its decision takes their place, as for any other charge.
    fn grant(&self, batch: &Batch<'_>) -> impl Future<Output = Result<Grant, StoreError>> + Send;
}
