//! Divides limits among Envoys that count themselves: the Rate Limit Quota Service. Experimental.
//!
//! An Envoy with the filter `envoy.filters.http.rate_limit_quota` asks for no decision. It reports every 5 seconds what
//! it has admitted and denied of each *bucket*, a map of keys to values, and obeys what it is ordered: to allow all, to
//! deny all, or to admit a number of requests. Such a number is a grant: weir charges it in the store, to the key that
//! a request with the same entries has, before it is sent. So all Envoys and all other clients of a key together never
//! admit more than its limits allow.
//!
//! A report goes through these files:
//!
//! 1. `stream` has the buckets of one Envoy, and takes its reports in.
//! 2. `Limiter::quota` finds the rule of a bucket, and controls.
//! 3. `account` knows what of earlier grants can be returned; `size` how much to grant, by `keys`; `window` until when.
//! 4. The store charges the grant, and what is returned or was used in excess.
//!
//! `next_order` puts these together for one bucket. `bucket` has the orders, `quotas` what all streams share.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod account;
mod bucket;
mod keys;
mod next_order;
mod options;
mod quotas;
mod size;
mod stream;
#[cfg(test)]
mod tests;
mod window;

pub use self::bucket::{BucketId, Order, QuotaAction, ReportedId};
pub use self::options::{Fallback, QuotaOptions};
pub use self::quotas::{ListedBucket, Quotas};
pub use self::stream::{QuotaReport, QuotaStream, ReportError};
pub use weir_limiter::Usage;
