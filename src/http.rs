//! HTTP: for clients `/json`, probes and `/metrics`; for operators the debug pages and `/v1`.

mod budget;
pub mod clients;
mod metrics;
pub mod operators;
mod page;
mod probes;
mod serve;
mod write_timeout;

pub use self::metrics::{MetricsPages, metrics};
pub use self::serve::{Limits, MAX_OVERFLOW_CONNECTIONS, Server};
