//! How quotas are divided.

use std::time::Duration;

use weir_common::failure::OnStoreFailure;
use weir_common::named_enum;

named_enum! {
    /// What happens to requests that no grant decides.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fallback, name {
        /// They pass.
        Allow = "allow",
        /// They are denied.
        Deny = "deny",
    }
}

/// How quotas are divided.
#[derive(Clone, Copy, Debug)]
pub struct QuotaOptions {
    /// What Envoys are ordered to do with buckets whose rules cannot be divided.
    pub unsupported: Fallback,
    /// What Envoys do with a bucket before the first order. Where they let requests pass, these are charged afterwards.
    pub fallback: Fallback,
    /// The replicas that divide limits: each gets an equal part of what is left.
    pub replicas: u32,
    /// The timeout of the store.
    pub store_timeout: Duration,
    /// The failure policy of domains without their own.
    pub on_failure: OnStoreFailure,
    /// The most streams.
    pub max_streams: usize,
    /// The most buckets of a stream.
    pub max_stream_buckets: usize,
    /// The most buckets of all streams.
    pub max_buckets: usize,
}
