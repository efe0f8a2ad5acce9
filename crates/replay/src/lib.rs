//! The work of `weir replay`: finds what rules would have decided about the requests of an access log.
//!
//! A [`Mapping`] says how the lines of a log become requests, a [`Replay`] sends them through one set of
//! rules or two, at the times in the log, and a [`Report`] has the result.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod distinct;
mod format;
mod html;
mod input;
mod mapping;
mod output;
mod progress;
mod report;
mod rows;
mod run;
mod side;
mod tally;
mod template;
mod text;
mod time;

pub use self::input::Input;
pub use self::mapping::{Mapping, MappingArgs};
pub use self::output::ReplayOutput;
pub use self::report::Report;
pub use self::run::Replay;
