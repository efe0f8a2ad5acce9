//! What all packages of weir share: clocks, metrics, logging, threads, small formats of texts. Knows no other package.

#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod allocator;
pub mod backoff;
pub mod bounded_work;
pub mod clock;
pub mod descriptor;
pub mod duration;
pub mod entry;
pub mod error;
pub mod escape;
pub mod failure;
pub mod file_reads;
pub mod glob;
pub mod metrics;
mod named_enum;
pub mod network;
pub mod number;
pub mod random;
pub mod regular;
pub mod secret;
pub mod spans;
pub mod suggest;
pub mod threads;
pub mod throttle;
pub mod truncate;
pub mod value;
