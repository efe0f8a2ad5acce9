//! Logs which rule sets are loaded or rejected, and throttles long or repeated lines.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

use super::reload::{Changes, Summary};
use weir_common::throttle::Throttle;
use weir_common::truncate::truncated;
use weir_rules::{Document, Loaded, Problem, Severity};

/// The bytes of errors that are logged of a rejection whose whole text is throttled.
const MAX_REPEATED_BYTES: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateSource {
    Files,
    ManagementServer,
    /// The active rules, with another overlay (patches of rules) or other lists.
    Present,
}

/// Throttles long texts about rule sets. Files change rarely, so each new text is
/// logged; a management server may send sets continuously, so its sets are always throttled.
#[derive(Debug, Default)]
pub struct LogLine {
    throttle: Throttle,
    hasher: RandomState,
    last: Mutex<Option<u64>>,
}

impl LogLine {
    /// Returns whether to log now, as [`Throttle::pass`].
    pub fn pass(&self, source: UpdateSource, text: &str) -> Option<u64> {
        let hash = self.hasher.hash_one(text);
        let repeats = self.last.lock().replace(hash) == Some(hash);
        let is_throttled = source == UpdateSource::ManagementServer || repeats;
        if is_throttled { self.throttle.pass() } else { Some(0) }
    }

    /// Returns the errors of a rejection to log now, and the number of lines suppressed before. Every rejection of
    /// files is logged, but the text is cut if it would be suppressed.
    pub fn errors<'t>(&self, source: UpdateSource, text: &'t str) -> Option<(Cow<'t, str>, u64)> {
        match self.pass(source, text) {
            Some(suppressed) => Some((text.into(), suppressed)),
            None if source == UpdateSource::ManagementServer => None,
            None => Some((truncated(text, MAX_REPEATED_BYTES).into(), 0)),
        }
    }
}

#[derive(Debug, Default)]
pub struct LoadLog {
    loaded: LogLine,
    rejected: LogLine,
    warnings: LogLine,
}

impl LoadLog {
    pub fn loaded(&self, source: UpdateSource, summary: Summary, changes: Option<&Changes>) {
        let Summary { files, domains, rules } = summary;
        let is_unchanged = changes.is_some_and(|changes| changes.list.is_empty());
        let text = changes.map(ToString::to_string);
        let changes = text.as_deref();
        let is_news = source == UpdateSource::Files || !is_unchanged;
        let passed = is_news.then(|| self.loaded.pass(source, changes.unwrap_or_default()));
        match passed.flatten() {
            Some(suppressed) => {
                let suppressed = (suppressed > 0).then_some(suppressed);
                tracing::info!(files, domains, rules, changes, suppressed, "rules are loaded");
            }
            None => tracing::debug!(files, domains, rules, changes, "rules are loaded"),
        }
    }

    pub fn warnings<D: Document>(&self, source: UpdateSource, loaded: &Loaded<D>) {
        let warnings: Vec<&Problem> = loaded.listed(Severity::Warning).collect();
        if warnings.is_empty() {
            return;
        }
        let text: String = warnings.iter().map(ToString::to_string).collect();
        let Some(suppressed) = self.warnings.pass(source, &text) else { return };
        for (location, Problem { message: warning, help, .. }) in
            D::locate(&loaded.files, &warnings)
        {
            tracing::warn!(%location, %warning, %help, "rules have a warning");
        }
        let omitted = loaded.omitted.warnings;
        if omitted > 0 || suppressed > 0 {
            tracing::warn!(omitted, suppressed, "more warnings about rules are not logged");
        }
    }

    pub fn rejected(&self, source: UpdateSource, message: &str, errors: usize, problems: &str) {
        match self.rejected.errors(source, problems) {
            Some((problems, suppressed)) => {
                let suppressed = (suppressed > 0).then_some(suppressed);
                tracing::error!(errors, %problems, suppressed, "{message}");
            }
            None => tracing::debug!(errors, %problems, "{message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_new_text_about_files_is_logged_and_repeats_are_throttled() {
        let line = LogLine::default();
        assert_eq!(line.pass(UpdateSource::Files, "a"), Some(0));
        assert_eq!(line.pass(UpdateSource::Files, "b"), Some(0));
        assert_eq!(line.pass(UpdateSource::Files, "b"), Some(0), "the first repeat");
        assert_eq!(line.pass(UpdateSource::Files, "b"), None);
        assert_eq!(line.pass(UpdateSource::Files, "c"), Some(0));
    }

    #[test]
    fn lines_about_a_management_server_are_throttled() {
        let line = LogLine::default();
        assert_eq!(line.pass(UpdateSource::ManagementServer, "a"), Some(0));
        assert_eq!(line.pass(UpdateSource::ManagementServer, "b"), None);
    }

    #[test]
    fn every_rejection_of_files_is_logged_but_repeats_are_cut() {
        let line = LogLine::default();
        let text = "x".repeat(5_000);
        let logged = || line.errors(UpdateSource::Files, &text).map(|(text, _)| text.len());
        let lengths: Vec<usize> = (0..4).map_while(|_| logged()).collect();
        assert_eq!(lengths.len(), 4);
        assert!(lengths[2..].iter().all(|length| (1..400).contains(length)), "{lengths:?}");
        assert_eq!(line.errors(UpdateSource::ManagementServer, "short"), None);
    }
}
