//! The algorithms: each file holds everything about one of them but its form in Redis.

pub mod bucketed_window;
pub mod concurrency;
pub mod fixed_window;
pub mod gcra;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;
