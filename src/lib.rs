//! weir, a rate-limit service for Envoy.

pub mod clock;
pub mod limit;
pub mod limiter;
pub mod proto;
pub mod rules;
pub mod settings;
pub mod store;
