//! Puts rule sets into force: compiled whole, swapped whole. A bad set changes nothing but what is
//! said about it, until a good one comes.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::json;

use crate::health::Health;
use crate::rules::source::RuleFile;
use crate::rules::{self, Loaded, Options, Problem, Problems, RuleSet, Severity};
use crate::service::Rules;
use crate::telemetry::metrics::Metrics;
use crate::throttle::Throttle;

/// How often a log line is written at most that a management server, or a file that is written
/// again and again, can repeat.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Takes what a source of rules delivers. Shared by all who deliver.
#[derive(Debug)]
pub struct Loader {
    rules: Rules,
    options: Options,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    /// One set at a time: its counts come from the set that it replaces.
    loading: Mutex<()>,
    status: Mutex<Status>,
    /// What the source of rules says of itself.
    source: Mutex<serde_json::Value>,
    refused_line: LogLine,
    warnings_line: LogLine,
    loaded_line: LogLine,
}

/// Who delivers a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Files,
    ManagementServer,
}

/// Why a set is not used.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The errors that are listed, in full, and how many are not.
    pub problems: String,
    /// How many errors there are.
    pub errors: usize,
}

/// A log line about a set. A file changes when somebody edits it, so that each new text is worth a
/// line; a management server may send sets continuously.
#[derive(Debug)]
struct LogLine {
    throttle: Throttle,
    hasher: RandomState,
    last: Mutex<Option<u64>>,
}

impl Default for LogLine {
    fn default() -> LogLine {
        let throttle = Throttle::new(LOG_INTERVAL);
        LogLine { throttle, hasher: RandomState::new(), last: Mutex::default() }
    }
}

impl LogLine {
    /// Returns whether to log now, as [`Throttle::pass`].
    fn pass(&self, sender: Sender, text: &str) -> Option<u64> {
        let hash = self.hasher.hash_one(text);
        let repeats = self.last.lock().replace(hash) == Some(hash);
        match sender == Sender::ManagementServer || repeats {
            true => self.throttle.pass(),
            false => Some(0),
        }
    }
}

/// What is in force, and what is wrong with what came after it.
#[derive(Clone, Debug, Default)]
struct Status {
    /// When the rules in force were loaded, and what they are.
    loaded: Option<(SystemTime, Summary)>,
    /// The problems of the newest set, where that is not in force; since when.
    refused: Option<(SystemTime, String)>,
}

/// A rule set in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub files: usize,
    pub domains: usize,
    pub rules: usize,
}

/// Frees a set here, once no request uses it any more: many rules take milliseconds to free, which
/// a thread that serves must not lose.
fn free_unused(set: Option<Arc<RuleSet>>) {
    let Some(mut set) = set else { return };
    // A request takes milliseconds at most. One that takes longer frees the set itself.
    for _ in 0..100 {
        match Arc::try_unwrap(set) {
            Ok(set) => return drop(set),
            Err(used) => set = used,
        }
        #[expect(clippy::disallowed_methods, reason = "a thread that loads rules serves nobody")]
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Loader {
    pub fn new(
        rules: Rules,
        options: Options,
        health: Arc<Health>,
        metrics: Arc<Metrics>,
    ) -> Loader {
        let (loading, status) = Default::default();
        let (refused_line, warnings_line, loaded_line) = Default::default();
        Loader {
            rules,
            options,
            health,
            metrics,
            loading,
            status,
            source: Mutex::new(json!({ "kind": "files" })),
            refused_line,
            warnings_line,
            loaded_line,
        }
    }

    /// A list for the problems of a set, with the room that the settings give.
    pub fn new_problems(&self) -> Problems {
        Problems::new(self.options.max_problems)
    }

    /// Takes down what the source of rules says of itself, for [`status`](Self::status).
    pub fn set_source(&self, source: serde_json::Value) {
        *self.source.lock() = source;
    }

    /// Whether any rules are in force.
    pub fn has_rules(&self) -> bool {
        self.rules.load().is_some()
    }

    /// Compiles `files` and puts them into force, with the counts of the rules before; or lists the
    /// problems, those found on the way to the files (`found`) first.
    ///
    /// # Errors
    /// Some problem is an error.
    pub fn load(&self, files: Vec<RuleFile>, found: Vec<Problem>) -> Result<Summary, Refusal> {
        let mut problems = self.new_problems();
        problems.of_files(found);
        self.load_from(Sender::Files, files, problems, Loaded::render_errors)
    }

    /// As [`load`](Self::load), for what a management server sent.
    ///
    /// # Errors
    /// Some problem is an error; each is described by its place in the message.
    pub fn load_sent(&self, files: Vec<RuleFile>, problems: Problems) -> Result<Summary, Refusal> {
        self.load_from(Sender::ManagementServer, files, problems, rules::xds::render_errors)
    }

    fn load_from(
        &self,
        sender: Sender,
        files: Vec<RuleFile>,
        problems: Problems,
        render_errors: fn(&Loaded) -> String,
    ) -> Result<Summary, Refusal> {
        let _one = self.loading.lock();
        let previous = self.rules.load_full();
        let loaded = Loaded::compile(files, problems, &self.options, previous.as_deref());
        self.log_warnings(sender, &loaded);
        #[expect(clippy::disallowed_methods, reason = "only shown in the status")]
        let now = SystemTime::now();
        if !loaded.is_good() {
            let problems = render_errors(&loaded);
            let meanwhile = match previous {
                Some(_) => "the rules before stay in force",
                None => "there are no rules, and every request gets an error, until it is mended",
            };
            if let Some(suppressed) = self.refused_line.pass(sender, &problems) {
                let suppressed = (suppressed > 0).then_some(suppressed);
                tracing::error!(
                    suppressed,
                    "Error loading new configuration: {meanwhile}\n{problems}"
                );
            }
            self.metrics.config_load_error.inc();
            self.status.lock().refused = Some((now, problems.clone()));
            return Err(Refusal { problems, errors: loaded.count(Severity::Error) });
        }
        let summary = Summary {
            files: loaded.files.len(),
            domains: loaded.rules.domains(),
            rules: loaded.rules.rules().count(),
        };
        drop(previous);
        let before = self.rules.swap(Some(Arc::new(loaded.rules)));
        *self.status.lock() = Status { loaded: Some((now, summary)), refused: None };
        self.metrics.config_load_success.inc();
        self.health.rules_loaded(summary.domains);
        let Summary { files, domains, rules } = summary;
        // Of files each set is another, so each line is.
        let passed = match sender {
            Sender::Files => Some(0),
            Sender::ManagementServer => self.loaded_line.throttle.pass(),
        };
        if let Some(suppressed) = passed {
            let suppressed = (suppressed > 0).then_some(suppressed);
            tracing::info!(files, domains, rules, suppressed, "rules are loaded");
        }
        free_unused(before);
        Ok(summary)
    }

    fn log_warnings(&self, sender: Sender, loaded: &Loaded) {
        let warnings: Vec<_> =
            loaded.problems.iter().filter(|problem| !problem.is_error()).collect();
        if warnings.is_empty() {
            return;
        }
        let text: String = warnings.iter().map(ToString::to_string).collect();
        let Some(suppressed) = self.warnings_line.pass(sender, &text) else { return };
        for problem in warnings {
            tracing::warn!("{problem}; {}", problem.help);
        }
        let omitted = loaded.omitted.warnings;
        if omitted > 0 || suppressed > 0 {
            tracing::warn!(omitted, suppressed, "more warnings of rules are not logged");
        }
    }

    /// The status as JSON, for the debug listener.
    pub fn status(&self) -> serde_json::Value {
        let status = self.status.lock().clone();
        let age = |then: SystemTime| then.elapsed().unwrap_or_default().as_secs();
        json!({
            "serving": self.health.is_serving(),
            "source": *self.source.lock(),
            "rules": status.loaded.map(|(when, summary)| json!({
                "loaded_seconds_ago": age(when),
                "files": summary.files,
                "domains": summary.domains,
                "rules": summary.rules,
            })),
            "refused": status.refused.map(|(when, problems)| json!({
                "seconds_ago": age(when),
                "problems": problems,
            })),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_new_text_about_files_is_logged_and_none_again_at_once() {
        let line = LogLine::default();
        assert_eq!(line.pass(Sender::Files, "a"), Some(0));
        assert_eq!(line.pass(Sender::Files, "b"), Some(0));
        assert_eq!(line.pass(Sender::Files, "b"), Some(0), "for the first time");
        assert_eq!(line.pass(Sender::Files, "b"), None);
        assert_eq!(line.pass(Sender::Files, "c"), Some(0));
    }

    #[test]
    fn a_management_server_gets_one_line_in_a_while() {
        let line = LogLine::default();
        assert_eq!(line.pass(Sender::ManagementServer, "a"), Some(0));
        assert_eq!(line.pass(Sender::ManagementServer, "b"), None);
    }
}
