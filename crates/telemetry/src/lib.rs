//! weir's log, metrics (for Prometheus and StatsD) and traces (by OTLP).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod log;
pub mod mapper;
pub mod metrics;
mod name_cache;
pub mod otlp;
pub mod prometheus;
pub mod reference;
pub mod statsd;
