//! Logs and metrics.

pub mod log;
pub mod mapper;
pub mod metrics;
mod name_cache;
pub mod prometheus;
pub mod reference;
#[cfg(feature = "statsd")]
pub mod statsd;
