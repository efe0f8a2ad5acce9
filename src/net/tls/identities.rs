//! The certificates that weir serves to clients, and those that it presents to servers: their dates in
//! metrics, in `/status` and in the log.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::certificate::Certificate;
use super::certificates::Certificates;
use super::expiry::{ExpiryLog, Notice, notice};
use weir_client::tls::{ClientCertificates, RejectedFiles};
use weir_common::clock::Clock;
use weir_common::metric_families;
use weir_common::metrics::{MetricSink, MetricSource, SampleValue};
use weir_limit::{Micros, SECOND};

/// How often the dates are compared with the clock.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

const LABELS: &[&str] = &["listener"];

metric_families! {
    NOT_BEFORE: gauge("tls_certificate_not_before_timestamp_seconds", LABELS)
        = "Time from which the certificate in use is valid, in seconds since the Unix epoch, by listener";
    NOT_AFTER: gauge("tls_certificate_not_after_timestamp_seconds", LABELS)
        = "Time at which the certificate in use expires, in seconds since the Unix epoch, by listener";
    LAST_LOAD_SUCCESSFUL: gauge("tls_last_load_successful", LABELS)
        = "Whether the newest files of certificates were accepted (0: rejected; 1: accepted, or none yet), by listener";
}

/// The sources of all certificates, by the names of listeners and of connections to servers.
#[derive(Clone, Debug, Default)]
pub struct Identities {
    served: Vec<Arc<Certificates>>,
    presented: Vec<(&'static str, Arc<ClientCertificates>)>,
}

#[derive(Debug)]
struct Identity {
    listener: &'static str,
    certificate: Option<Certificate>,
    file: Option<String>,
    rejected: Option<RejectedFiles>,
}

/// What operators should do something about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateProblem {
    pub text: String,
    pub file: Option<String>,
    /// When it began, in seconds since 1970.
    pub since: i64,
    /// The name of a runbook in docs/operations.md.
    pub runbook: &'static str,
}

impl Identities {
    pub fn serve(&mut self, certificates: Arc<Certificates>) {
        self.served.push(certificates);
    }

    pub fn present(&mut self, to: &'static str, certificates: Arc<ClientCertificates>) {
        self.presented.push((to, certificates));
    }

    pub fn is_empty(&self) -> bool {
        self.served.is_empty() && self.presented.is_empty()
    }

    /// Returns the certificates in use, as `/status` has them.
    pub fn to_json(&self) -> Value {
        let entry = |Identity { listener, certificate, .. }: Identity| {
            let Certificate { subject, not_before, not_after } = certificate?;
            let time = |seconds| Some(jiff::Timestamp::from_second(seconds).ok()?.to_string());
            Some(json!({
                "listener": listener,
                "subject": subject,
                "not_before": time(not_before),
                "not_after": time(not_after),
            }))
        };
        self.all().filter_map(entry).collect()
    }

    /// Returns the certificates that expire soon or have expired `now`, and the files that were rejected.
    pub fn problems(&self, now: Micros) -> Vec<CertificateProblem> {
        let mut problems = Vec::new();
        for Identity { listener, certificate, file, rejected } in self.all() {
            if let Some(RejectedFiles { error, since }) = rejected {
                let text = format!("changed TLS certificates of {listener} are invalid: {error}");
                let ago = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                let since = seconds(now.saturating_sub(ago));
                let (file, runbook) = (file.clone(), "WeirCertificateNotReloaded");
                problems.push(CertificateProblem { text, file, since, runbook });
            }
            let Some(certificate) = certificate else { continue };
            let Some((notice, since)) = notice(&certificate, seconds(now)) else { continue };
            let what = match notice {
                Notice::Expires => "expires soon",
                Notice::Expired => "has expired",
            };
            let subject = &certificate.subject;
            let mut text = format!("TLS certificate {subject} of {listener} {what}");
            if let Some(expires) = certificate.expires() {
                text += &format!(": {expires}");
            }
            let runbook = "WeirCertificateExpires";
            problems.push(CertificateProblem { text, file, since, runbook });
        }
        problems
    }

    /// Logs certificates that expire soon or have expired. Never ends.
    pub async fn follow(self: Arc<Self>, clock: Arc<dyn Clock>) {
        let mut logs = Vec::new();
        logs.resize_with(self.served.len() + self.presented.len(), ExpiryLog::default);
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.log_expiry(&mut logs, clock.now());
        }
    }

    fn log_expiry(&self, logs: &mut [ExpiryLog], now: Micros) {
        for (log, Identity { listener, certificate, .. }) in logs.iter_mut().zip(self.all()) {
            let Some(certificate) = certificate else { continue };
            let Some(notice) = log.due(&certificate, seconds(now)) else { continue };
            let expires = certificate.expires().map(tracing::field::display);
            let subject = certificate.subject;
            match notice {
                Notice::Expires => {
                    tracing::warn!(listener, subject, expires, "TLS certificate expires soon");
                }
                Notice::Expired => {
                    tracing::warn!(listener, subject, expires, "TLS certificate has expired");
                }
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = Identity> {
        let served = self.served.iter().map(|certificates| Identity {
            listener: certificates.options.listener,
            certificate: certificates.certificate(),
            file: Some(certificates.options.cert.display().to_string()),
            rejected: certificates.rejected(),
        });
        let presented = self.presented.iter().map(|(listener, certificates)| {
            let (pem, file) = (certificates.in_use(), certificates.files().cert.as_ref());
            let identity = pem.as_ref().and_then(|pem| pem.identity.as_ref());
            Identity {
                listener,
                certificate: identity.and_then(|(pem, _)| Certificate::from_pem(pem)),
                file: file.map(|file| file.path.display().to_string()),
                rejected: certificates.rejected(),
            }
        });
        served.chain(presented)
    }
}

fn seconds(time: Micros) -> i64 {
    i64::try_from(time / SECOND).unwrap_or(i64::MAX)
}

impl MetricSource for Identities {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let all: Vec<Identity> = self.all().collect();
        let mut add = |family, value: fn(&Identity) -> Option<f64>| {
            sink.family(family);
            for identity in &all {
                if let Some(value) = value(identity) {
                    sink.sample(&[("listener", identity.listener)], SampleValue::Gauge(value));
                }
            }
        };
        add(NOT_BEFORE, |identity| Some(identity.certificate.as_ref()?.not_before as f64));
        add(NOT_AFTER, |identity| Some(identity.certificate.as_ref()?.not_after as f64));
        add(LAST_LOAD_SUCCESSFUL, |identity| {
            Some(f64::from(u8::from(identity.rejected.is_none())))
        });
    }
}
