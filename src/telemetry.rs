//! Logs, metrics and traces.

pub mod log;
pub mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod prometheus;
