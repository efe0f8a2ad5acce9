//! Puts rule sets into force: compiled whole, swapped whole. A bad set changes nothing but what is
//! said about it, until a good one comes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::json;

use crate::health::Health;
use crate::rules::source::RuleFile;
use crate::rules::{Loaded, Options, Problem, RuleSet};
use crate::service::Rules;
use crate::telemetry::metrics::Metrics;

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
        let source = Mutex::new(json!({ "kind": "files" }));
        Loader { rules, options, health, metrics, loading, status, source }
    }

    /// Takes down what the source of rules says of itself, for [`status`](Self::status).
    pub fn set_source(&self, source: serde_json::Value) {
        *self.source.lock() = source;
    }

    /// Whether any rules are in force.
    pub fn has_rules(&self) -> bool {
        self.rules.load().is_some()
    }

    /// Compiles `files` and puts them into force, with the counts of the rules before; or tells
    /// every problem, those found on the way to the files (`problems`) first.
    pub fn load(&self, files: Vec<RuleFile>, problems: Vec<Problem>) -> Result<Summary, String> {
        self.load_telling(files, problems, Loaded::render_errors)
    }

    /// As [`load`](Self::load), with problems told as `tell` does.
    pub fn load_telling(
        &self,
        files: Vec<RuleFile>,
        problems: Vec<Problem>,
        tell: fn(&Loaded) -> String,
    ) -> Result<Summary, String> {
        let _one = self.loading.lock();
        let previous = self.rules.load_full();
        let loaded = Loaded::compile(files, problems, &self.options, previous.as_deref());
        for problem in loaded.problems.iter().filter(|problem| !problem.is_error()) {
            tracing::warn!("{problem}; {}", problem.help);
        }
        #[expect(clippy::disallowed_methods, reason = "only shown in the status")]
        let now = SystemTime::now();
        if !loaded.is_good() {
            let problems = tell(&loaded);
            let meanwhile = match previous {
                Some(_) => "the rules before stay in force",
                None => "there are no rules, and every request gets an error, until it is mended",
            };
            tracing::error!("Error loading new configuration: {meanwhile}\n{problems}");
            self.metrics.config_load_error.inc();
            self.status.lock().refused = Some((now, problems.clone()));
            return Err(problems);
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
        tracing::info!(files, domains, rules, "rules are loaded");
        free_unused(before);
        Ok(summary)
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
