//! The arithmetic of rate limits: of one limit, and of all limits of a rule together.
//!
//! Pure: a limit, the state kept for one key, an instant and a number of hits go in; a verdict and the new state come
//! out. No clock, no I/O, no async. Every store answers with the numbers computed here.
//!
//! From the bottom: [`algorithm`] defines what an algorithm is, [`algorithms`] lists them, `limit` is one limit, and
//! [`plan`] charges all limits of a rule. `plan::op` has the operations of a charge (take hits, refund, reserve …),
//! `decision` its answer.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod algorithm;
#[macro_use]
pub mod algorithms;
mod ban;
pub mod calendar;
mod decision;
pub mod hit_log;
mod limit;
mod numbers;
pub mod plan;
mod saved;
#[cfg(test)]
mod tests;
mod time;

pub use algorithm::{HoldLevels, Packed, SpanCount, Verdict};
pub use algorithms::*;
pub use ban::{Ban, BanReading, BanState};
pub use calendar::{Calendar, CalendarError};
pub use decision::{Decision, NearLimit, ReservationResult, Source};
pub use limit::{ChargeOutcome, Fill, Limit};
pub use numbers::{Numbers, NumbersError};
pub use plan::inspect::{CountError, KeyState, LeasedHits, LimitReading};
pub use plan::op::{Op, Otherwise, ReservationOp, Reserve, Undo, UpTo};
pub use plan::reservation::Reservation;
pub use plan::{Plan, State, smallest_capacity};
pub use saved::log_copy::{LogCopy, NextPart};
pub use saved::put_varint;
pub use time::{MAX_PERIOD_SECONDS, MAX_WAIT, MAX_WAIT_YEARS, Micros, SECOND, Unit};
