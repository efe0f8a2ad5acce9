//! Reports the state of the stream from the management server in the log, the metrics and `/status`.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde_json::json;

use super::server::XdsOptions;
use crate::rule_sources::loader::{Loader, StreamLost};
use weir_common::metric_families;
use weir_common::metrics::{Counter, Gauge, MetricSink, MetricSource};
use weir_common::throttle::Throttle;
use weir_telemetry::metrics::Metrics;

#[derive(Clone, Debug, Default)]
pub struct XdsMetrics {
    pub connected: Gauge,
    pub stream_failures: Counter,
}

metric_families! {
    XDS_CONNECTED: gauge("xds_connected", &[]) = "Open streams from the management server (0 or 1)";
    XDS_STREAM_FAILURES: counter("xds_stream_failures", &[])
        = "Streams from the management server that failed or ended";
}

impl MetricSource for XdsMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.gauge(XDS_CONNECTED, self.connected.get() as f64);
        sink.counter(XDS_STREAM_FAILURES, self.stream_failures.get());
    }
}

/// The maximum number of failure reasons that are throttled separately.
const MAX_KINDS: usize = 8;

#[derive(Debug)]
pub struct XdsReport {
    loader: Arc<Loader>,
    metrics: XdsMetrics,
    started: Instant,
    url: String,
    /// A server may accept and end connections continuously.
    connected_line: Throttle,
    state: Mutex<ReportState>,
}

#[derive(Debug, Default)]
struct ReportState {
    connected: bool,
    lost_at: Option<Instant>,
    /// The version of the active rules.
    version: Option<String>,
    failure: Option<(SystemTime, String)>,
    /// Kinds of failures so far; those beyond [`MAX_KINDS`] count as the last.
    kinds: Vec<FailureKind>,
}

#[derive(Debug, Default)]
struct FailureKind {
    reason: String,
    /// Whether the failure was logged since the last connection: a server may be unreachable for days.
    logged: bool,
    throttle: Throttle,
}

impl ReportState {
    /// Returns whether to log a failure now, as [`Throttle::pass`].
    fn pass(&mut self, reason: &str) -> Option<u64> {
        let known = self.kinds.iter().position(|kind| kind.reason == reason);
        let index = known.unwrap_or_else(|| {
            if self.kinds.len() < MAX_KINDS {
                let reason = reason.to_owned();
                self.kinds.push(FailureKind { reason, ..FailureKind::default() });
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

impl XdsReport {
    pub fn new(options: &XdsOptions, loader: Arc<Loader>, metrics: &Metrics) -> XdsReport {
        let counts = XdsMetrics::default();
        metrics.add(Arc::new(counts.clone()));
        let report = XdsReport {
            loader,
            metrics: counts,
            started: Instant::now(),
            url: options.url.to_string(),
            connected_line: Throttle::default(),
            state: Mutex::default(),
        };
        report.publish(&report.state.lock());
        report
    }

    pub fn connected(&self) {
        let mut state = self.state.lock();
        if state.connected {
            return;
        }
        state.connected = true;
        state.kinds.iter_mut().for_each(|kind| kind.logged = false);
        self.metrics.connected.set(1);
        let server = &self.url;
        match self.connected_line.pass() {
            Some(suppressed) => {
                let suppressed = (suppressed > 0).then_some(suppressed);
                tracing::info!(server, suppressed, "connected to the management server");
            }
            None => tracing::debug!(server, "connected to the management server"),
        }
        self.publish(&state);
    }

    pub fn accepted(&self, version: String) {
        let mut state = self.state.lock();
        state.version = Some(version);
        self.publish(&state);
    }

    /// Reports the failure or the end of a stream; weir reconnects after `wait`.
    pub fn failed(&self, reason: &str, wait: Duration) {
        let mut state = self.state.lock();
        self.metrics.connected.set(0);
        self.metrics.stream_failures.inc();
        let (server, rules_active) = (&self.url, self.loader.has_rules());
        match state.pass(reason) {
            None => {
                tracing::debug!(server, %reason, ?wait, "no stream from the management server");
            }
            Some(suppressed) => {
                let suppressed = (suppressed > 0).then_some(suppressed);
                tracing::warn!(
                    server,
                    %reason,
                    rules_active,
                    suppressed,
                    "no stream from the management server, reconnecting"
                );
            }
        }
        if std::mem::take(&mut state.connected) {
            state.lost_at = Some(Instant::now());
        }
        #[expect(clippy::disallowed_methods, reason = "only shown in the status")]
        let now = SystemTime::now();
        state.failure = Some((now, reason.to_owned()));
        self.publish(&state);
    }

    fn publish(&self, state: &ReportState) {
        let failure = state.failure.as_ref().map(|(when, failure)| {
            let since = when.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            json!({ "unix_seconds": since.as_secs(), "reason": failure })
        });
        let source = json!({
            "kind": "xds",
            "server": self.url,
            "connected": state.connected,
            "version": state.version,
            "last_failure": failure,
        });
        let reason = state.failure.as_ref().map_or("it has not answered yet", |(_, reason)| reason);
        let since = state.lost_at.unwrap_or(self.started);
        let lost = StreamLost { since, reason: reason.to_owned() };
        self.loader.set_source(source, Some(lost).filter(|_| !state.connected));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_once_for_each_reason_and_connection() {
        let mut state = ReportState::default();
        assert_eq!(state.pass("refused"), Some(0));
        assert_eq!(state.pass("refused"), None);
        assert_eq!(state.pass("no certificate"), Some(0));
        // After a connection, but within the interval.
        state.kinds.iter_mut().for_each(|kind| kind.logged = false);
        assert_eq!(state.pass("refused"), None);
        assert!(!state.kinds[0].logged);
    }

    #[test]
    fn reasons_beyond_the_maximum_are_logged_as_one() {
        let mut state = ReportState::default();
        let logged = (0..100).filter(|i| state.pass(&format!("error {i}")).is_some()).count();
        assert_eq!((logged, state.kinds.len()), (MAX_KINDS, MAX_KINDS));
    }
}
