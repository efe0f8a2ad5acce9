//! The overlay: files of patches for the rules of any source. A valid one is applied to the active rules at once; an
//! invalid one leaves the one before in place.

use std::time::SystemTime;

use parking_lot::Mutex;
use serde_json::json;

use super::log::{LogLine, UpdateSource};
use super::metrics::OverlayMetrics;
use super::reload::Rejected;
use weir_rules::source::RuleFile;
use weir_rules::{Overlay, OverlayReport, Position, Problem, RuleOptions, Severity};

#[derive(Debug, Default)]
pub(super) struct OverlayState {
    pub(super) metrics: OverlayMetrics,
    active: Mutex<Option<Overlay>>,
    status: Mutex<OverlayStatus>,
    rejected_line: LogLine,
    failed_line: LogLine,
}

#[derive(Clone, Debug, Default)]
struct OverlayStatus {
    /// The overlay of the active rules.
    active: Option<LoadedOverlay>,
    /// The newest overlay, until there are active rules with it.
    next: Option<LoadedOverlay>,
    rejected: Option<Rejected>,
    /// The errors of the last overlay that was rejected, and when that was.
    last_error: Option<(SystemTime, String)>,
    /// The outcome of the patches on the active rules.
    report: OverlayReport,
    /// The problems of the report, in full.
    problems: String,
}

#[derive(Clone, Debug)]
struct LoadedOverlay {
    loaded: SystemTime,
    files: Vec<String>,
    patches: usize,
}

impl OverlayState {
    pub fn active(&self) -> Option<Overlay> {
        self.active.lock().clone()
    }

    /// Validates files, and keeps them for the next rules. Returns the problems of invalid ones, which are logged.
    pub fn load(
        &self,
        files: Vec<RuleFile>,
        found: Vec<Problem>,
        options: &RuleOptions,
    ) -> Result<(), String> {
        #[expect(clippy::disallowed_methods, reason = "only shown in the status")]
        let now = SystemTime::now();
        let overlay = Overlay::new(files, found, options).map_err(|error| {
            let problems = error.render();
            let shown = self.rejected_line.errors(UpdateSource::Files, &problems);
            let shown = shown.map(|(problems, _)| problems).unwrap_or_default();
            let message = match self.active().is_some() {
                true => "new overlay is rejected, the previous one stays active",
                false => "overlay is rejected, rules load without it until it is fixed",
            };
            tracing::error!(problems = %shown, "{message}");
            self.metrics.error.inc();
            self.metrics.newest_rejected.set(1);
            let mut status = self.status.lock();
            let mut listed = error.problems.iter().filter(|problem| problem.is_error());
            let (first, others) = (listed.next(), listed.count());
            let errors = usize::from(first.is_some()) + others + error.omitted.errors;
            let before = status.rejected.as_ref();
            status.rejected = Some(Rejected::new(message, first, errors, now, before));
            status.last_error = Some((now, problems.clone()));
            problems
        })?;
        let files = overlay.files().map(str::to_owned).collect();
        let next = LoadedOverlay { loaded: now, files, patches: overlay.patches };
        *self.active.lock() = Some(overlay);
        self.metrics.newest_rejected.set(0);
        let mut status = self.status.lock();
        (status.next, status.rejected) = (Some(next), None);
        Ok(())
    }

    /// Notes that the active rules, if there are any, have the newest overlay.
    pub fn activate(&self) {
        let mut status = self.status.lock();
        let Some(next) = status.next.take() else { return };
        tracing::info!(files = next.files.len(), patches = next.patches, "overlay is loaded");
        status.active = Some(next);
    }

    /// Records and logs the outcome of the patches on the rules that are active now.
    pub fn applied(&self, source: UpdateSource, overlay: Option<&Overlay>, report: OverlayReport) {
        let Some(overlay) = overlay else { return };
        self.metrics.failed_patches.set(report.failed_patches as i64);
        let problems = overlay.render(&report);
        if !problems.is_empty()
            && let Some(suppressed) = self.failed_line.pass(source, &problems)
        {
            log_problems(&report, suppressed);
        }
        let mut status = self.status.lock();
        (status.report, status.problems) = (report, problems);
        drop(status);
        self.activate();
    }

    pub fn rejected(&self) -> Option<Rejected> {
        self.status.lock().rejected.clone()
    }

    /// The status as JSON; `age` returns the seconds since a time.
    pub fn status(&self, age: impl Fn(SystemTime) -> u64) -> serde_json::Value {
        let status = self.status.lock().clone();
        let active = status.active.as_ref();
        let last_error = status
            .last_error
            .map(|(when, problems)| json!({ "seconds_ago": age(when), "problems": problems }));
        json!({
            "files": active.map(|active| &active.files),
            "loaded_seconds_ago": active.map(|active| age(active.loaded)),
            "patches": active.map(|active| active.patches),
            "patched_rules": status.report.patched_rules,
            "failed_patches": status.report.failed_patches,
            "problems": status.problems,
            "refused": last_error.as_ref().filter(|_| status.rejected.is_some()),
            "last_error": last_error,
        })
    }
}

fn log_problems(report: &OverlayReport, suppressed: u64) {
    for problem in &report.problems {
        let Problem { file, message, help, .. } = problem;
        let line = problem.position.and_then(Position::line);
        match problem.severity {
            Severity::Error => tracing::error!(
                file,
                line,
                error = %message,
                %help,
                "a patch does not fit, rules load without it"
            ),
            Severity::Warning => {
                tracing::warn!(file, line, warning = %message, %help, "a patch has a warning");
            }
        }
    }
    let omitted = report.omitted.errors + report.omitted.warnings;
    if omitted > 0 || suppressed > 0 {
        tracing::warn!(omitted, suppressed, "more problems of patches are not logged");
    }
}
