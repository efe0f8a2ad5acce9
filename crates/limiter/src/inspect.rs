//! What one descriptor has counted, for operators: read and reset by the look-up of decisions.

mod json;

pub use json::{
    CountResult, CountedSpan, DescriptorState, HoldState, LeasedState, LimitState, ReadState,
    ReservationState,
};

use std::slice;
use std::time::Duration;

use super::applied::{Applied, look_up, state_key};
use super::lookup::{KeyValues, Lookup};
use super::{Descriptor, Limiter, Request};
use crate::controls::ActiveView;
use weir_common::entry::OwnedEntry;
use weir_limit::{KeyState, Micros};
use weir_store::{StateKey, States, StoreError};

/// What applies to a descriptor, and what its key has counted.
#[derive(Debug)]
pub struct Inspection<'s> {
    pub domain: String,
    pub entries: Vec<OwnedEntry>,
    pub applied: Applied<'s>,
    /// The state of the key; none if nothing is counted: no rule matches, or the rule is unlimited.
    pub state: Option<Result<KeyState, StoreError>>,
    /// The spans of the counts in `state`, in order.
    pub spans: Vec<Micros>,
}

/// Why a descriptor's state was not reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetError {
    #[error("{0}")]
    BadDescriptor(&'static str),
    #[error("{0}")]
    Store(StoreError),
}

impl<S: States> Limiter<S> {
    /// Looks up a descriptor as a request with it alone does, reads what it has counted, and counts the
    /// hits of the last `spans`. Changes nothing. Ends within `budget`.
    ///
    /// # Errors
    ///
    /// The descriptor's own limit is invalid; the error says why. Failures of the store are part of the
    /// result.
    pub async fn inspect<'s>(
        &self,
        active: impl Into<ActiveView<'s>>,
        domain: &str,
        descriptor: &Descriptor<'_>,
        spans: &[Micros],
        budget: Duration,
    ) -> Result<Inspection<'s>, &'static str> {
        let request = alone(domain, descriptor);
        let mut key_values: KeyValues<'_> = None;
        let lookup = look_up(active.into(), &request, &mut key_values).map_err(|(_, why)| why)?;
        let state = match counted_key(domain, &lookup) {
            Some(key) => Some(self.store.read(key, spans, budget).await),
            None => None,
        };
        Ok(Inspection {
            domain: domain.to_owned(),
            entries: OwnedEntry::copied(descriptor.entries.iter().copied()),
            applied: applied(&request, &lookup, &self.options.key_prefix),
            state,
            spans: spans.to_vec(),
        })
    }

    /// Looks up a descriptor as [`inspect`](Self::inspect) does, and deletes what it has counted, if anything is.
    /// The next request starts over. Ends within `budget`. Returns what applies to the descriptor.
    ///
    /// # Errors
    ///
    /// The descriptor's own limit is invalid, or the store failed.
    pub async fn reset<'s>(
        &self,
        active: impl Into<ActiveView<'s>>,
        domain: &str,
        descriptor: &Descriptor<'_>,
        budget: Duration,
    ) -> Result<Applied<'s>, ResetError> {
        let request = alone(domain, descriptor);
        let mut key_values: KeyValues<'_> = None;
        let lookup = look_up(active.into(), &request, &mut key_values);
        let lookup = lookup.map_err(|(_, why)| ResetError::BadDescriptor(why))?;
        if let Some(key) = counted_key(domain, &lookup) {
            self.store.reset(key, budget).await.map_err(ResetError::Store)?;
        }
        Ok(applied(&request, &lookup, &self.options.key_prefix))
    }
}

/// Returns a request with one descriptor.
fn alone<'r>(domain: &'r str, descriptor: &'r Descriptor<'r>) -> Request<'r> {
    let descriptors = slice::from_ref(descriptor);
    Request { domain, descriptors, ..Request::default() }
}

/// Returns the key that a request of one descriptor charges, if any.
fn counted_key<'a>(domain: &'a str, lookup: &'a Lookup<'_, '_>) -> Option<StateKey<'a>> {
    state_key(domain, lookup, lookup.matched.first()?)
}

fn applied<'s>(request: &Request<'_>, lookup: &Lookup<'s, '_>, key_prefix: &str) -> Applied<'s> {
    lookup
        .matched
        .first()
        .map(|matched| Applied::new(request, lookup, matched, key_prefix))
        .unwrap_or_default()
}
