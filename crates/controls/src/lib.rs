//! What operators decide at run time: block, allow, limit.
//!
//! A [`Control`] matches the descriptors that contain its entries. All controls are compiled to an
//! [`index`](CompiledControls), which one [`Snapshot`] holds together with the rules: a request loads
//! both at once, and without controls a decision pays one branch.
//!
//! [`Controls`] is the handle for operators. It applies a change here first, and then shares it: with Redis in a table
//! that each process reads several times a second, and in memory in a file, if a setting names one, with a copy.
//!
//! - `control`, `pattern`, `request`, `error`: a control, and what an operator sends
//! - `index`, `changes`, `plans`, `limits`, `compiled`, `snapshot`: what a decision uses
//! - `set`, `share`, `file`: the controls of this process and how they are merged and kept
//! - `handle`: what operators use, and its metrics
//! - `time`: the clock of controls, and times in JSON

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod changes;
mod compiled;
mod control;
mod error;
mod file;
mod handle;
mod index;
mod limits;
mod pattern;
mod plans;
mod request;
mod set;
mod share;
mod snapshot;
#[cfg(test)]
mod tests;
mod time;

pub use compiled::{CompiledControls, Effect};
pub use control::{Action, Control, Draft, LimitChange};
pub use error::{ControlError, ErrorKind};
pub use handle::{Controls, ControlsOptions, PutOptions, Unkept, Written};
pub use request::Expiry;
pub use share::FirstRead;
pub use snapshot::{ActiveRules, ActiveView, Snapshot};
pub use time::{ControlClock, text as time_text};
