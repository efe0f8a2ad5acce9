//! What is told of the management server: in logs, metrics, and at `/status`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::json;

use super::Options;
use crate::loader::Loader;
use crate::telemetry::metrics::{Metrics, XdsMetrics};

/// How many failures are logged until there is a connection again.
const MOST_LOGGED: usize = 8;

#[derive(Debug)]
pub struct Report {
    loader: Arc<Loader>,
    metrics: XdsMetrics,
    url: String,
    mode: &'static str,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connected: bool,
    /// Of the rules in force.
    version: Option<String>,
    /// The last failure, and when it was.
    failure: Option<(SystemTime, String)>,
    /// The failures that were logged since there was a connection.
    logged: Vec<String>,
}

impl Report {
    pub fn new(options: &Options, loader: Arc<Loader>, metrics: &Metrics) -> Report {
        let report = Report {
            loader,
            metrics: metrics.xds(),
            url: options.url.clone(),
            mode: if options.delta { "delta" } else { "sotw" },
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
            state.logged.clear();
            self.metrics.connected.set(1);
            tracing::info!(server = self.url, "connected to the management server");
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
        // Once for each way to fail: a server may be gone for days.
        if state.logged.len() >= MOST_LOGGED || state.logged.iter().any(|logged| logged == failure)
        {
            tracing::debug!(server, ?wait, "still no stream from the management server: {failure}");
        } else {
            let meanwhile = match rules {
                true => "the rules in force stay",
                false => "there are no rules until it answers",
            };
            tracing::warn!(
                server,
                "no stream from the management server: {failure}; it is called again until it \
                 answers, and {meanwhile}"
            );
            state.logged.push(failure.to_owned());
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
