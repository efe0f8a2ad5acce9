//! What is told of the management server: in logs, metrics, and at `/status`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::json;

use super::Options;
use crate::loader::Loader;
use crate::telemetry::metrics::{Metrics, XdsMetrics};
use crate::throttle::Throttle;

/// How many kinds of failures are told apart.
const MAX_KINDS: usize = 8;

/// How often each kind of failure is logged at most, and that there is a connection: a server may
/// take connections and end them continuously.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Report {
    loader: Arc<Loader>,
    metrics: XdsMetrics,
    url: String,
    mode: &'static str,
    connected_line: Throttle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connected: bool,
    /// Of the rules in force.
    version: Option<String>,
    /// The last failure, and when it was.
    failure: Option<(SystemTime, String)>,
    /// The kinds of failures there were; beyond [`MAX_KINDS`] all are the last.
    kinds: Vec<FailureKind>,
}

/// Failures for one reason.
#[derive(Debug)]
struct FailureKind {
    reason: String,
    /// Whether it was logged since there was a connection: a server may be gone for days.
    logged: bool,
    throttle: Throttle,
}

impl State {
    /// Returns whether to log a failure now, as [`Throttle::pass`].
    fn pass(&mut self, reason: &str) -> Option<u64> {
        let known = self.kinds.iter().position(|kind| kind.reason == reason);
        let index = known.unwrap_or_else(|| {
            if self.kinds.len() < MAX_KINDS {
                let throttle = Throttle::new(LOG_INTERVAL);
                self.kinds.push(FailureKind { reason: reason.to_owned(), logged: false, throttle });
            }
            self.kinds.len() - 1
        });
        let kind = &mut self.kinds[index];
        if kind.logged {
            return None;
        }
        let passed = kind.throttle.pass();
        kind.logged = passed.is_some();
        passed
    }
}

impl Report {
    pub fn new(options: &Options, loader: Arc<Loader>, metrics: &Metrics) -> Report {
        let report = Report {
            loader,
            metrics: metrics.xds(),
            url: options.url.clone(),
            mode: if options.delta { "delta" } else { "sotw" },
            connected_line: Throttle::new(LOG_INTERVAL),
            state: Mutex::default(),
        };
        report.tell(&report.state.lock());
        report
    }

    /// The server answers, or at least does not refuse.
    pub fn connected(&self) {
        let mut state = self.state.lock();
        if !state.connected {
            state.connected = true;
            state.kinds.iter_mut().for_each(|kind| kind.logged = false);
            self.metrics.connected.set(1);
            match self.connected_line.pass() {
                Some(suppressed) => {
                    let suppressed = (suppressed > 0).then_some(suppressed);
                    tracing::info!(
                        server = self.url,
                        suppressed,
                        "connected to the management server"
                    );
                }
                None => tracing::debug!(server = self.url, "connected to the management server"),
            }
            self.tell(&state);
        }
    }

    /// Rules of this version went into force.
    pub fn taken(&self, version: String) {
        let mut state = self.state.lock();
        state.version = Some(version);
        self.tell(&state);
    }

    /// There is no stream, for this reason, and there will be no other before `wait` is over.
    pub fn failed(&self, failure: &str, wait: Duration) {
        let mut state = self.state.lock();
        self.metrics.connected.set(0);
        self.metrics.stream_failures.inc();
        let (server, rules) = (&self.url, self.loader.has_rules());
        match state.pass(failure) {
            None => {
                tracing::debug!(
                    server,
                    ?wait,
                    "still no stream from the management server: {failure}"
                );
            }
            Some(suppressed) => {
                let suppressed = (suppressed > 0).then_some(suppressed);
                let meanwhile = match rules {
                    true => "the rules in force stay",
                    false => "there are no rules until it answers",
                };
                tracing::warn!(
                    server,
                    suppressed,
                    "no stream from the management server: {failure}; it is called again until it \
                     answers, and {meanwhile}"
                );
            }
        }
        state.connected = false;
        #[expect(clippy::disallowed_methods, reason = "only shown in the status")]
        let now = SystemTime::now();
        state.failure = Some((now, failure.to_owned()));
        self.tell(&state);
    }

    fn tell(&self, state: &State) {
        let failure = state.failure.as_ref().map(|(when, failure)| {
            let since = when.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            json!({ "unix_seconds": since.as_secs(), "reason": failure })
        });
        self.loader.set_source(json!({
            "kind": "xds",
            "server": self.url,
            "mode": self.mode,
            "connected": state.connected,
            "version": state.version,
            "last_failure": failure,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_once_for_each_reason_and_connection() {
        let mut state = State::default();
        assert_eq!(state.pass("refused"), Some(0));
        assert_eq!(state.pass("refused"), None);
        assert_eq!(state.pass("no certificate"), Some(0));
        // After a connection, but too soon.
        state.kinds.iter_mut().for_each(|kind| kind.logged = false);
        assert_eq!(state.pass("refused"), None);
        assert!(!state.kinds[0].logged);
    }

    #[test]
    fn reasons_without_end_are_logged_as_one() {
        let mut state = State::default();
        let logged = (0..100).filter(|i| state.pass(&format!("error {i}")).is_some()).count();
        assert_eq!((logged, state.kinds.len()), (MAX_KINDS, MAX_KINDS));
    }
}
