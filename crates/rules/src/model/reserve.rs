//! The key `reserve` of a rule, for hits that are known only once a request is done, such as tokens of a model. A call
//! before the request reserves (charges) an estimate, and a settling call after it corrects the charge.

use std::{fmt, iter};

use serde::{Deserialize, Serialize};

use weir_limit::{Limit, Reservation, smallest_capacity};

/// The key `reserve` of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    /// The key of the entry that names a reservation.
    pub id: Box<str>,
    /// The key of the entry that marks a settling call; none: a call settles what its id has reserved.
    pub settle: Option<Box<str>>,
    /// The hits of callers that send none.
    pub estimate: Option<u32>,
    /// The hits without which nothing is reserved.
    pub at_least: u32,
    /// The most hits that are reserved; larger estimates are cut to it.
    pub at_most: u32,
    /// How long a reservation can be settled, in whole seconds: 1 to 86 400.
    #[serde(rename = "timeout_seconds")]
    pub timeout: u32,
    /// Whether the id is the rule's own last key.
    #[serde(skip)]
    pub has_own_id: bool,
}

/// What a request's descriptor asks of a rule with `reserve`, by the entries that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReserveStep {
    /// Without an id: hits are charged as by any rule; 0 hits charge nothing.
    NoId,
    /// With an id: hits are reserved.
    Reserve,
    /// With an id and the entry that marks a settling call: what the id has reserved is settled.
    Settle,
}

impl Reserve {
    pub(crate) const DEFAULT_TIMEOUT: u32 = 3_600;
    pub(crate) const MAX_TIMEOUT: u32 = Reservation::MAX_TIMEOUT;

    /// Returns the keys of the entries that name a reservation and mark a settling call.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        iter::once(&*self.id).chain(self.settle.as_deref())
    }

    /// Returns the key of the entry that follows the rule's and `further` ones: the id, then the mark of a settling call.
    pub fn next_key(&self, further: usize) -> Option<&str> {
        match further + usize::from(self.has_own_id) {
            0 => Some(&self.id),
            1 => self.settle.as_deref(),
            _ => None,
        }
    }

    /// Returns whether the keys after those of the rule are those of [`next_key`](Self::next_key), as far as they go.
    pub fn takes<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> bool {
        keys.into_iter().enumerate().all(|(i, key)| self.next_key(i) == Some(key))
    }

    /// Cuts what is reserved to the smallest capacity of the limits, unless they deny all.
    pub(crate) fn cut_to(&mut self, capacity: u64) {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        if capacity > 0 {
            self.at_most = self.at_most.min(capacity);
            self.at_least = self.at_least.min(capacity);
            self.estimate = self.estimate.map(|estimate| estimate.min(capacity));
        }
    }
}

/// Returns the most hits that are reserved where the rule does not say: half of the smallest capacity.
pub(crate) fn default_at_most(limits: &[Limit], at_least: u32, estimate: Option<u32>) -> u32 {
    let half = u32::try_from(smallest_capacity(limits) / 2).unwrap_or(u32::MAX);
    half.max(at_least).max(estimate.unwrap_or(1))
}

/// `id: request_id, settle: settle, estimate: 4000, at_least: 1000, at_most: 20000, timeout: 3600s`
impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id: {}", self.id)?;
        if let Some(settle) = &self.settle {
            write!(f, ", settle: {settle}")?;
        }
        if let Some(estimate) = self.estimate {
            write!(f, ", estimate: {estimate}")?;
        }
        let Reserve { at_least, at_most, timeout, .. } = self;
        write!(f, ", at_least: {at_least}, at_most: {at_most}, timeout: {timeout}s")
    }
}
