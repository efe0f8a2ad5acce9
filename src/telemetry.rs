//! What the service says of itself: logs and metrics.

pub mod log;
pub mod metrics;
