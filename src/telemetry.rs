//! Logs and metrics.

pub mod log;
pub mod metrics;
pub mod prometheus;
