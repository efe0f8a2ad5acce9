//! The commands that run beside the server: `check`, `diff`, `explain`, `test`, `replay` and `hit`; and those of operators,
//! which read and change a running weir through `/v1`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod api_client;
pub mod change;
pub mod check;
pub mod controls;
mod describe;
pub mod diff;
pub mod explain;
pub mod hit;
pub mod http_client;
mod match_args;
pub mod print;
pub mod quotas;
pub mod replay;
pub mod rule_files;
pub mod state;
pub mod test;
pub mod top;
pub mod unblock;
pub mod why;

pub use api_client::{environment, path_of_server};
pub use print::USAGE;
