//! What a request asks, free of how it came.

use crate::store::Entry;

/// What is asked: may this happen?
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub domain: &'a str,
    pub descriptors: &'a [Descriptor<'a>],
    /// How many more descriptors were sent: so many that it is refused.
    pub beyond: usize,
    /// Hits of each descriptor that does not say its own; 0 means 1.
    pub hits_addend: u32,
}

/// What a request is about; each is looked up and decided on its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor<'a> {
    pub entries: &'a [Entry<'a>],
    /// A limit sent along, used in place of the rules'.
    pub limit: Option<Override>,
    pub hits_addend: Option<u64>,
    pub is_negative_hits: bool,
}

/// A limit sent along with a descriptor, as it was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Override {
    pub requests_per_unit: u32,
    /// The number of `envoy.type.v3.RateLimitUnit`.
    pub unit: i32,
    pub unit_multiplier: Option<u32>,
}
