//! Watches when certificates expire, those of listeners and those that weir presents to servers such as Redis, and
//! reports their dates in metrics, in `/status` and in the log.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::certificate::Certificate;
use super::certificates::Certificates;
use weir_client::tls::{ClientCertificates, RejectedFiles};
use weir_common::clock::Clock;
use weir_common::metric_families;
use weir_common::metrics::{MetricSink, MetricSource, SampleValue};
use weir_limit::{Micros, SECOND};

/// How often the dates are compared with the clock.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

const DAY: i64 = 86_400;

/// How long before its end a certificate is logged, in seconds. A certificate that is valid for less than
/// twice as long is renewed later, and skips this log line. All are logged when they become a problem.
const NOTICES: [i64; 3] = [21 * DAY, 7 * DAY, DAY];

/// How long before its end a certificate is a problem for operators, in seconds, or a fifth of its lifetime if less.
const PROBLEM_BELOW: i64 = 7 * DAY;

/// How often an expired certificate is logged, in seconds.
const REPEAT: i64 = 3600;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    Expires,
    Expired,
}

/// What was logged about the certificate of one listener.
#[derive(Debug, Default)]
struct ExpiryLog {
    certificate: Option<Certificate>,
    /// How many of [`NOTICES`] have passed.
    passed: usize,
    /// When the certificate was last reported as expired, in seconds since 1970.
    expired: Option<i64>,
}

/// Returns the passed notices that apply to this certificate, `left` seconds before its end, and whether it is a problem.
fn passed(certificate: &Certificate, left: i64) -> impl Iterator<Item = i64> {
    let lifetime = certificate.not_after.saturating_sub(certificate.not_before);
    let notices = NOTICES.into_iter().filter(move |notice| lifetime >= 2 * notice);
    let soon = PROBLEM_BELOW.min(lifetime / 5);
    notices.chain([soon]).filter(move |notice| left <= *notice)
}

/// Returns whether a certificate is a problem `now`, and since when, in seconds since 1970: by the rule of the alert
/// WeirCertificateExpires.
fn notice(certificate: &Certificate, now: i64) -> Option<(Notice, i64)> {
    let not_after = certificate.not_after;
    let left = not_after.saturating_sub(now);
    if left < 0 {
        return Some((Notice::Expired, not_after));
    }
    let lifetime = not_after.saturating_sub(certificate.not_before);
    let soon = PROBLEM_BELOW.min(lifetime / 5);
    (left < soon).then(|| (Notice::Expires, not_after.saturating_sub(soon)))
}

impl ExpiryLog {
    /// Returns what to log about the active certificate `now`, in seconds since 1970.
    fn due(&mut self, certificate: &Certificate, now: i64) -> Option<Notice> {
        if self.certificate.as_ref() != Some(certificate) {
            let certificate = Some(certificate.clone());
            *self = ExpiryLog { certificate, ..ExpiryLog::default() };
        }
        let left = certificate.not_after.saturating_sub(now);
        if left < 0 {
            // The clock may step back.
            let is_due = self.expired.is_none_or(|at| now.abs_diff(at) >= REPEAT.unsigned_abs());
            return is_due.then(|| {
                self.expired = Some(now);
                Notice::Expired
            });
        }
        let passed = passed(certificate, left).count();
        let is_due = passed > self.passed;
        self.passed = self.passed.max(passed);
        is_due.then_some(Notice::Expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that is valid for `days` from 1970 on.
    fn valid_for(days: i64) -> Certificate {
        Certificate { subject: "CN=weir".to_owned(), not_before: 0, not_after: days * DAY }
    }

    /// Returns the minutes after the beginning at which something is logged, with checks each minute.
    fn logged(certificate: &Certificate, minutes: std::ops::Range<i64>) -> Vec<(i64, Notice)> {
        let mut log = ExpiryLog::default();
        minutes.filter_map(|minute| Some((minute, log.due(certificate, minute * 60)?))).collect()
    }

    #[test]
    fn each_notice_is_logged_once_if_the_certificate_is_valid_for_twice_as_long() {
        const MINUTES: i64 = DAY / 60;
        // A fifth of a short lifetime is when it becomes a problem.
        for (days, notices) in [
            (90, &[21 * MINUTES, 7 * MINUTES, MINUTES][..]),
            (42, &[21 * MINUTES, 7 * MINUTES, MINUTES]),
            (41, &[7 * MINUTES, MINUTES]),
            (10, &[2 * MINUTES, MINUTES]),
            (5, &[MINUTES]),
            (2, &[MINUTES, 2 * MINUTES / 5]),
            (1, &[MINUTES / 5]),
        ] {
            let wanted: Vec<_> =
                notices.iter().map(|left| (days * MINUTES - left, Notice::Expires)).collect();
            assert_eq!(logged(&valid_for(days), 0..days * MINUTES + 1), wanted, "{days}");
        }
        // weir starts late: one line, not two.
        let start = 88 * MINUTES;
        let wanted = [(start, Notice::Expires), (89 * MINUTES, Notice::Expires)];
        assert_eq!(logged(&valid_for(90), start..90 * MINUTES), wanted);
    }

    #[test]
    fn a_certificate_is_a_problem_when_the_alert_fires() {
        let at = |certificate: &Certificate, day| notice(certificate, day * DAY);
        let long = valid_for(90);
        assert_eq!([at(&long, 69), at(&long, 83)], [None; 2]);
        for day in [84, 89] {
            assert_eq!(at(&long, day), Some((Notice::Expires, 83 * DAY)));
        }
        assert_eq!(at(&long, 91), Some((Notice::Expired, 90 * DAY)));
        // A fifth of ten days.
        let short = valid_for(10);
        assert_eq!(at(&short, 8), None);
        assert_eq!(at(&short, 9), Some((Notice::Expires, 8 * DAY)));
    }

    #[test]
    fn an_expired_certificate_is_logged_each_hour() {
        let end = DAY / 60;
        let wanted = [0, 60, 120].map(|minute| (end + 1 + minute, Notice::Expired));
        assert_eq!(logged(&valid_for(1), end + 1..end + 180), wanted);
    }

    #[test]
    fn a_renewed_certificate_starts_over_and_a_clock_that_steps_back_repeats_nothing() {
        let (old, new) = (valid_for(90), valid_for(150));
        let mut log = ExpiryLog::default();
        let at = |log: &mut ExpiryLog, certificate, day| log.due(certificate, day * DAY);
        assert_eq!(at(&mut log, &old, 70), Some(Notice::Expires));
        assert_eq!(at(&mut log, &old, 60), None);
        assert_eq!(at(&mut log, &old, 71), None);
        assert_eq!(at(&mut log, &new, 72), None);
        assert_eq!(at(&mut log, &new, 130), Some(Notice::Expires));
        assert_eq!(at(&mut log, &new, 151), Some(Notice::Expired));
        assert_eq!(log.due(&new, 151 * DAY + 1), None);
    }
}
