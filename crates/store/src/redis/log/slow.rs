//! Lines about slow connections. The connections of all threads to one server are slow together: the log
//! has one line per server and interval.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use weir_common::throttle::Throttle;

/// The shortest time between two lines about one server.
const INTERVAL: Duration = Duration::from_secs(10);

/// A throttle for each server, by its name, for as long as a connection to the server holds it.
#[derive(Debug, Default)]
pub(in crate::redis) struct SlowLines(Mutex<HashMap<String, Weak<Throttle>>>);

impl SlowLines {
    /// Returns the throttle that all connections to a server share.
    pub fn of_server(&self, server: &dyn Display) -> Arc<Throttle> {
        let (mut throttles, server) = (self.0.lock(), server.to_string());
        if let Some(throttle) = throttles.get(&server).and_then(Weak::upgrade) {
            return throttle;
        }
        throttles.retain(|_, throttle| throttle.strong_count() > 0);
        let throttle = Arc::new(Throttle::new(INTERVAL));
        throttles.insert(server, Arc::downgrade(&throttle));
        throttle
    }
}

/// Logs that a server answered only after `elapsed`, longer than `slow_after`.
pub(in crate::redis) fn log_slow(
    throttle: &Throttle,
    server: &dyn Display,
    elapsed: Duration,
    slow_after: Duration,
) {
    if let Some(suppressed) = throttle.pass() {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (elapsed_ms, slow_after_ms) = (millis(elapsed), millis(slow_after));
        tracing::warn!(
            %server, elapsed_ms, slow_after_ms, suppressed,
            "redis connection slow, probing"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_one_server_share_a_throttle_while_there_are_any() {
        let lines = SlowLines::default();
        let [a, b] = [(); 2].map(|()| lines.of_server(&"redis:6379"));
        let other = lines.of_server(&"redis:6380");
        assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &other));
        assert_eq!((a.pass(), other.pass(), b.pass()), (Some(0), Some(0), None));
        drop((a, b));
        lines.of_server(&"redis:6381");
        assert_eq!(lines.0.lock().len(), 2, "those of closed connections are removed");
    }
}
