//! weir, a rate-limit service for Envoy.
//!
//! The path of a request:
//!
//! ```text
//! Envoy ──grpc──▶ service ──▶ limiter ──▶ rules      find the rule of each descriptor
//!                                │
//!                                ├──────▶ store      charge all keys of the request in one call
//!                                │          └─▶ limit   the arithmetic: state + now + hits → verdict
//!                                ▼
//!                             response               statuses, overall code, headers, metadata
//! ```
//!
//! Dependencies point in this direction only: [`grpc`] and [`http`] use [`service`], [`service`] uses
//! [`weir_limiter`], that uses [`weir_rules`] and [`weir_store`], and these use [`weir_limit`]. Nothing
//! below [`service`] uses HTTP. What is below it has packages of its own; ARCHITECTURE.md describes them.
//!
//! `watch` reads rule files when they change, `xds` receives rules from a management server, and
//! `loader` compiles and activates them. [`net`] has the connections of clients and the threads that
//! serve them. Metrics are counted everywhere and exported by
//! [`weir_telemetry`]; [`trace`] decides which requests have spans. `app` builds the service from the
//! [`settings`], and [`cli`] has the subcommands.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

// The allocator of the program, in main.rs.
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
use tikv_jemallocator as _;

mod app;
pub mod cli;
pub mod grpc;
mod health;
pub mod http;
mod loader;
pub mod net;
pub mod resp;
pub mod service;
pub mod settings;
mod token_file;
pub mod trace;
mod watch;
mod xds;

pub use weir_api::proto;

/// The version of the program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first 12 digits of the git commit; `unknown` if `build.rs` could not find it.
pub(crate) const COMMIT: &str = env!("WEIR_COMMIT");

/// Version and commit, for `weir --version`.
pub(crate) const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("WEIR_COMMIT"), ")");
