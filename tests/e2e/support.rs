//! What the tests start and talk through.

pub mod api;
pub mod backend;
pub mod envoy;
pub mod http;
pub mod load;
pub mod management;
#[path = "../support/messages.rs"]
pub mod messages;
pub mod program;
#[path = "../support/redis.rs"]
pub mod redis;
pub mod weir;

use std::time::{Duration, Instant};

/// How long anything may take to happen before a test gives up. Long, since machines may be busy;
/// nothing waits for longer than it must.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again until there is something to see.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < give_up, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
