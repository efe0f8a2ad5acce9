//! What all packages of weir share: clocks, metrics, throttled logging, threads, and the small formats of
//! texts. Nothing here knows a rule or a store.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod bounded_work;
pub mod causes;
#[cfg(feature = "tls")]
pub mod client_tls;
pub mod clock;
pub mod descriptor;
pub mod duration;
pub mod entry;
pub mod escape;
pub mod failure;
pub mod file_reads;
pub mod glob;
#[cfg(feature = "http-client")]
pub mod http_client;
pub mod metrics;
pub mod network;
pub mod number;
pub mod random;
pub mod regular;
#[cfg(feature = "http-client")]
pub mod resolve;
pub mod secret_path;
pub mod secret_url;
pub mod settled_files;
pub mod setup_error;
pub mod spans;
pub mod suggest;
pub mod terminal;
pub mod threads;
pub mod throttle;
