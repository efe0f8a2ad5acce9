//! Decides rate-limit requests. For each, `limiter` takes these steps:
//!
//! 1. `lookup` finds what applies to each descriptor: a rule, a limit sent along, or nothing.
//! 2. `decision` makes a batch with a charge for each descriptor that has a limit.
//! 3. The store charges the batch.
//! 4. `statuses` concludes: statuses and the overall decision, which `stats` counts, `log` and `spans` record, and
//!    `denials` shows. All read the same list: `Answered` has what was decided about each descriptor.
//!
//! `applied`, `explain` and `inspect` show operators what applies to a descriptor, and what it has counted.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod applied;
mod decision;
mod denials;
pub mod explain;
mod holds;
mod inspect;
mod limiter;
mod log;
mod lookup;
mod metrics;
mod options;
mod quota;
mod request;
mod reserving;
mod spans;
mod stats;
mod statuses;
#[cfg(test)]
mod tests;

pub use applied::Applied;
pub use decision::{Burst, RequestDecision, RequestError, ShownLimit, Status};
pub use denials::{Denial, DenialFeed, DenialSample, rule_id};
pub use holds::{Holds, TakenHolds};
pub use inspect::{
    CountResult, CountedSpan, DescriptorState, GrantedState, HoldState, InspectedBan,
    InspectedLimit, LeasedState,
};
pub use inspect::{Inspection, ReadState, ReservationState, ResetError};
pub use limiter::Limiter;
pub use metrics::LimiterCounts;
pub use options::LimiterOptions;
pub use quota::{BucketKey, BucketQuota, Usage};
pub use request::{Budget, Descriptor, Override, Request, ReservationStep};
