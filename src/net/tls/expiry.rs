//! When to log that a certificate expires.

use super::certificate::Certificate;

const DAY: i64 = 86_400;

/// How long before its end a certificate is reported, in seconds. Certificates that are valid for less
/// than twice as long are renewed later, and not reported then. All are when they become a problem.
const NOTICES: [i64; 3] = [21 * DAY, 7 * DAY, DAY];

/// How long before its end a certificate is a problem, in seconds, unless a fifth of its lifetime is less.
const PROBLEM_BELOW: i64 = 7 * DAY;

/// How often an expired certificate is reported, in seconds.
const REPEAT: i64 = 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    Expires,
    Expired,
}

/// What was logged about the certificate of one listener.
#[derive(Debug, Default)]
pub(super) struct ExpiryLog {
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
pub(super) fn notice(certificate: &Certificate, now: i64) -> Option<(Notice, i64)> {
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
    pub fn due(&mut self, certificate: &Certificate, now: i64) -> Option<Notice> {
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
