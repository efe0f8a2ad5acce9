//! weir, a rate-limit service for Envoy.
//!
//! One request goes one way, and there is no way back:
//!
//! ```text
//! Envoy ──grpc──▶ service ──▶ limiter ──▶ rules      which rule matches each descriptor?
//!                                │
//!                                ├──────▶ store      charge the keys, all of a request in one call
//!                                │          └─▶ limit   the arithmetic: state + now + hits → verdict
//!                                ▼
//!                             response               statuses, overall code, headers, metadata
//! ```
//!
//! [`grpc`] and [`http`] know [`service`], which knows [`limiter`]; [`limiter`] knows [`rules`] and
//! [`store`]; these two know [`limit`], which knows nobody. Beside that way, [`watch`] reads rule
//! files when they change, or [`xds`] takes rules from a management server, and [`loader`] puts them
//! into force. [`workers`] are the threads that serve, and [`connections`] are bounded. [`settings`] are known only to [`cli`] and
//! [`app`], which wire things together. Nothing below [`service`] knows Protobuf or HTTP.

#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod clock;
pub mod connections;
mod duration;
pub mod entry;
pub mod escape;
pub mod failure;
pub mod grpc;
pub mod health;
pub mod http;
pub mod limit;
pub mod limiter;
pub mod loader;
pub mod proto;
mod random;
pub mod rules;
pub mod service;
pub mod settings;
pub mod store;
mod suggest;
pub mod telemetry;
mod threads;
pub mod throttle;
pub mod watch;
pub mod workers;
pub mod xds;
