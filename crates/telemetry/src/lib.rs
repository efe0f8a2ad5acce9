//! Logs, metrics and traces.

pub mod log;
pub mod mapper;
pub mod metrics;
mod name_cache;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod prometheus;
pub mod reference;
#[cfg(feature = "statsd")]
pub mod statsd;
