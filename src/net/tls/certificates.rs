//! The active certificates of a listener: loads and reloads them when files change, counts reloads and handshakes.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ServerConfig;

use super::certificate::Certificate;
use super::config::{Checked, Files, TlsOptions};
use weir_client::tls::RejectedFiles;
use weir_common::error::SetupError;
use weir_common::file_reads::FileReads;
use weir_common::metrics::{Counter, MetricFamily, MetricSink, MetricSource, SampleValue};
use weir_common::threads::repeat_blocking;
use weir_common::throttle::Throttle;

/// How often the files are read. Polling finds every kind of change, also of links (as Kubernetes
/// replaces `..data`) and on network file systems, and three small files cost little.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The certificates of one listener. A changed set replaces the active one as a whole if it is
/// valid: certificate, key and client CA.
#[derive(Debug)]
pub struct Certificates {
    pub options: TlsOptions,
    reads: FileReads,
    active: ArcSwap<Checked>,
    seen: Mutex<Seen>,
    pub metrics: TlsMetrics,
    reload_log: Throttle,
}

/// Fingerprints (hashes) of the files: of the active set, and of the set that was read last.
#[derive(Debug)]
struct Seen {
    active: u64,
    last: u64,
    /// The fingerprint of the invalid set that was reported, and its error.
    reported: Option<(u64, RejectedFiles)>,
}

impl Certificates {
    /// Reads the files of a listener. An error names the setting, the file, the cause and the fix.
    pub fn load(options: TlsOptions) -> Result<Arc<Certificates>, SetupError> {
        let reads = FileReads::new(u64::MAX);
        let files = Files::read(&options, &reads);
        let checked = files.check(&options)?;
        let fingerprint = files.fingerprint();
        Ok(Arc::new(Certificates {
            options,
            reads,
            active: ArcSwap::from_pointee(checked),
            seen: Mutex::new(Seen { active: fingerprint, last: fingerprint, reported: None }),
            metrics: TlsMetrics::default(),
            reload_log: Throttle::default(),
        }))
    }

    pub(super) fn active(&self) -> Arc<ServerConfig> {
        self.active.load().config.clone()
    }

    pub(super) fn certificate(&self) -> Option<Certificate> {
        self.active.load().certificate.clone()
    }

    pub(super) fn rejected(&self) -> Option<RejectedFiles> {
        self.seen.lock().reported.as_ref().map(|(_, rejected)| rejected.clone())
    }

    /// Loads every change. Never ends.
    pub async fn follow(self: Arc<Self>) {
        let certificates = self.clone();
        let failed = || self.metrics.reload_failures.inc();
        // A file system may not respond, and checking keys takes a while.
        repeat_blocking(POLL_INTERVAL, move || certificates.poll(), failed).await;
    }

    /// Reads the files, and activates them if they have changed and are valid.
    pub(super) fn poll(&self) {
        let files = Files::read(&self.options, &self.reads);
        let fingerprint = files.fingerprint();
        let mut seen = self.seen.lock();
        let has_settled = std::mem::replace(&mut seen.last, fingerprint) == fingerprint;
        if fingerprint == seen.active {
            seen.reported = None;
            return;
        }
        if seen.reported.as_ref().is_some_and(|(reported, _)| *reported == fingerprint) {
            return;
        }
        // Not held during the check: `/status` reads it.
        drop(seen);
        let checked = files.check(&self.options);
        let mut seen = self.seen.lock();
        match checked {
            Ok(checked) => {
                seen.active = fingerprint;
                seen.reported = None;
                drop(seen);
                self.activate(checked);
            }
            // Else it may be half written: the certificate before its key.
            Err(error) if has_settled => {
                let before = seen.reported.take().map(|(_, before)| before);
                seen.reported = Some((fingerprint, RejectedFiles::new(&error, before)));
                drop(seen);
                self.report(&error.to_string());
            }
            Err(_) => {}
        }
    }

    fn activate(&self, checked: Checked) {
        let expires = checked.certificate.as_ref().and_then(Certificate::expires);
        let expires = expires.map(tracing::field::display);
        self.active.store(Arc::new(checked));
        self.metrics.reloads.inc();
        tracing::info!(listener = self.options.listener, expires, "TLS certificates reloaded");
    }

    fn report(&self, error: &str) {
        self.metrics.reload_failures.inc();
        if let Some(suppressed) = self.reload_log.pass() {
            tracing::error!(
                listener = self.options.listener,
                error,
                suppressed,
                "changed TLS certificates are invalid: the previous ones stay active"
            );
        }
    }
}

/// Handshakes and reloads of certificates, which are counted by listener.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    pub handshakes: Counter,
    pub handshake_failures: Counter,
    /// Handshakes that were refused because too many others waited.
    pub handshakes_refused: Counter,
    pub reloads: Counter,
    pub reload_failures: Counter,
}

#[derive(Clone, Debug)]
pub struct TlsListeners(pub Vec<(&'static str, TlsMetrics)>);

impl MetricSource for TlsListeners {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let mut add = |name, help, counter: fn(&TlsMetrics) -> &Counter| {
            sink.family(MetricFamily::counter(name, help, &["listener"]));
            for (listener, metrics) in &self.0 {
                let value = SampleValue::Counter(counter(metrics).get());
                sink.sample(&[("listener", listener)], value);
            }
        };
        add("tls_handshakes", "TLS handshakes completed, by listener", |all| &all.handshakes);
        add("tls_handshake_failures", "TLS handshakes that failed, by listener", |all| {
            &all.handshake_failures
        });
        add(
            "tls_handshakes_refused",
            "Connections closed because too many TLS handshakes waited, by listener",
            |all| &all.handshakes_refused,
        );
        add("tls_reloads", "Changed certificates loaded, by listener", |all| &all.reloads);
        add("tls_reload_failures", "Changed certificates rejected, by listener", |all| {
            &all.reload_failures
        });
    }
}
