//! weir, a rate-limit service for Envoy.
//!
//! The path of a request:
//!
//! ```text
//! Envoy ───net───▶ rls ─────▶ limiter ──▶ rules      find the rule of each descriptor
//!                                │
//!                                ├──────▶ store      charge all keys of the request in one call
//!                                │          └─▶ limit   the arithmetic: state + now + hits → verdict
//!                                ▼
//!                             response               statuses, overall code, headers, metadata
//! ```
//!
//! `rls` is Envoy's rate-limit service over gRPC. Dependencies point in this direction only. What is below [`rls`]
//! knows no HTTP, and has packages of its own. ARCHITECTURE.md describes them and the modules of this one.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod app;
pub mod cli;
mod health;
pub mod http;
pub mod net;
pub mod resp;
pub mod rls;
mod rule_sources;
pub mod settings;
pub mod trace;

pub use weir_api::proto;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first 12 digits of the git commit; `unknown` if `build.rs` could not find it.
pub(crate) const COMMIT: &str = env!("WEIR_COMMIT");

pub(crate) const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("WEIR_COMMIT"), ")");
