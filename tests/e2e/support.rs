//! Programs that the tests start, and clients for them.

pub mod api;
pub mod backend;
#[path = "../support/browser.rs"]
pub mod browser;
#[path = "../support/certificates.rs"]
pub mod certificates;
pub mod collector;
#[path = "../support/console.rs"]
pub mod console;
pub mod control_api;
pub mod envoy;
#[path = "../support/files.rs"]
pub mod files;
pub mod http;
pub mod load;
pub mod management;
#[path = "../support/markdown.rs"]
pub mod markdown;
#[path = "../support/messages.rs"]
pub mod messages;
pub mod model;
#[path = "../support/openapi.rs"]
pub mod openapi;
pub mod pauses;
pub mod program;
#[path = "../support/redis.rs"]
pub mod redis;
#[path = "../support/schemas.rs"]
pub mod schemas;
pub mod service_address;
pub mod statsd;
pub mod tls;
#[path = "../support/tools.rs"]
pub mod tools;
pub mod traffic;
pub mod weir;
#[path = "../support/yaml.rs"]
pub mod yaml;

use std::time::{Duration, Instant};

/// How long a test waits for anything before it fails. Long, because the machine may be busy; no test
/// waits longer than it must.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until there is a value. Fails if that takes longer than [`PATIENCE`].
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Polls until a condition holds, as [`wait_for`] does.
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
