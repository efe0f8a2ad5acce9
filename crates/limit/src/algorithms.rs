//! The algorithms: the one list of them, and for each a file with everything about it but its form
//! in Redis.

pub mod bucketed_window;
pub mod concurrency;
pub mod fixed_window;
pub mod gcra;
pub mod reduce_bucket;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;

pub use bucketed_window::BucketedWindow;
pub use concurrency::Concurrency;
pub use concurrency::hash_hold_id;
pub use fixed_window::FixedWindow;
pub use gcra::{Gcra, GcraError};
pub use reduce_bucket::ReduceBucket;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use token_bucket::TokenBucket;

use super::algorithm::define_algorithms;
use super::{LimitAlgorithm, Micros, Packed, SavedNumbers, saved};

// Each algorithm with its state. Large states are boxed, so that small ones stay small.
define_algorithms! { $
    FixedWindow => fixed_window::State,
    SlidingWindow => sliding_window::State,
    // Its state is the log that all such limits of a rule share.
    SlidingLog => (),
    BucketedWindow => Box<bucketed_window::State>,
    TokenBucket => token_bucket::State,
    /// The generic cell rate algorithm, also called leaky bucket.
    Gcra => gcra::State,
    Concurrency => Box<concurrency::State>,
    /// The bucket of the Redis command `RL.REDUCE`; rule files cannot name it.
    ReduceBucket => reduce_bucket::State,
}
