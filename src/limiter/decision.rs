//! What a request is answered, free of how it is sent.

use smallvec::SmallVec;

use crate::limit::{Limit, Unit};
use crate::rules::Metadata;
use crate::store::StoreError;

/// The answer to a request.
#[derive(Debug)]
pub struct RequestDecision<'s> {
    pub over_limit: bool,
    /// One for each descriptor, in order.
    pub statuses: SmallVec<[Status<'s>; 4]>,
}

/// The answer to one descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status<'s> {
    pub over_limit: bool,
    /// The limit that binds; none where nothing matched, or the rule is unlimited.
    pub limit: Option<ShownLimit<'s>>,
    /// The hits still allowed; `u32::MAX` where the rule is unlimited, 0 where nothing matched.
    pub remaining: u32,
    /// What to wait: until the same is allowed again where it was denied, else until the limit is
    /// back to its full allowance. Whole seconds, at least 1.
    pub reset_seconds: u64,
    /// Whether the rule counts as a quota: over only when all quotas are.
    pub quota: bool,
    /// The matched rule's metadata.
    pub metadata: Option<&'s Metadata>,
}

/// A limit as it is shown to clients.
#[derive(Clone, Copy, Debug)]
pub struct ShownLimit<'s> {
    pub name: &'s str,
    pub requests_per_unit: u32,
    pub unit: Option<Unit>,
    pub unit_multiplier: u32,
}

/// Why a request gets no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    #[error("no rate limit configuration loaded")]
    NoRules,
    #[error("{0} descriptors in one request, {1} are allowed (setting grpc.max_descriptors)")]
    TooManyDescriptors(usize, usize),
    #[error("descriptor {0}: {1}")]
    BadDescriptor(usize, &'static str),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<'s> ShownLimit<'s> {
    pub(super) fn new(limit: &Limit, name: &'s str) -> ShownLimit<'s> {
        ShownLimit {
            name,
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
            unit_multiplier: limit.unit_multiplier,
        }
    }
}

impl<'s> RequestDecision<'s> {
    /// The status that response headers tell of: the one with the least remaining, the first of
    /// equals; but of those over their limit that are no quotas the last. None where no limit
    /// applied.
    pub fn shown(&self) -> Option<(&Status<'s>, &ShownLimit<'s>)> {
        let mut shown: Option<&Status<'s>> = None;
        let mut least = u32::MAX;
        for status in self.statuses.iter().filter(|status| status.limit.is_some()) {
            if status.over_limit && !status.quota {
                (shown, least) = (Some(status), 0);
            } else if shown.is_none() || status.remaining < least {
                (shown, least) = (Some(status), status.remaining);
            }
        }
        shown.and_then(|status| Some((status, status.limit.as_ref()?)))
    }
}
