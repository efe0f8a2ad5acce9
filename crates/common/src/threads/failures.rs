//! Restarts the work of a background thread when it panics, and counts the panics for metrics.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::metrics::{MetricSink, MetricSource};

/// The wait before work is started again, which doubles up to the maximum.
const MIN_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(60);

crate::metric_families! {
    FAILURES: counter("thread_failures", &["thread"]) = "Panics of background threads, which were started again";
}

/// The number of panics of each background thread.
#[derive(Clone, Debug, Default)]
pub struct Failures(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Failures {
    /// Does the work of a background thread until it returns: if it panics, again after a wait.
    pub fn restart<T>(&self, thread: &'static str, mut work: impl FnMut() -> T) -> T {
        // So that its first failure is an increase.
        self.0.lock().entry(thread).or_default();
        let mut wait = MIN_WAIT;
        loop {
            let started = Instant::now();
            if let Ok(done) = catch_unwind(AssertUnwindSafe(&mut work)) {
                return done;
            }
            if started.elapsed() >= MAX_WAIT {
                wait = MIN_WAIT;
            }
            self.0.lock().entry(thread).and_modify(|count| *count += 1);
            let retry_ms = wait.as_millis();
            tracing::error!(thread, retry_ms, "a background thread failed and is started again");
            #[expect(clippy::disallowed_methods, reason = "the thread has nothing else to do")]
            std::thread::sleep(wait);
            wait = (wait * 2).min(MAX_WAIT);
        }
    }

    /// Returns the number of panics of a thread; none if it has not started.
    pub fn of(&self, thread: &str) -> Option<u64> {
        self.0.lock().get(thread).copied()
    }
}

impl MetricSource for Failures {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counters(FAILURES, self.0.lock().iter().map(|(thread, count)| (*thread, *count)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_is_done_again_and_counted() {
        let (failures, mut tries) = (Failures::default(), 0);
        let done = failures.restart("weir-test", || {
            tries += 1;
            assert!(tries > 2, "this panic is a part of the test");
            tries
        });
        assert_eq!((done, failures.of("weir-test")), (3, Some(2)));
        assert_eq!(failures.of("weir-other"), None);
    }

    #[test]
    fn work_that_ends_is_not_done_again() {
        let (failures, mut tries) = (Failures::default(), 0);
        failures.restart("weir-test", || tries += 1);
        assert_eq!((tries, failures.of("weir-test")), (1, Some(0)));
    }
}
