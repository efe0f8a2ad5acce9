//! Puts rule sets into force: compiled whole, swapped whole. A bad set changes nothing but what is
//! said about it, until a good one comes.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde_json::json;

use crate::health::Health;
use crate::rules::source::RuleFile;
use crate::rules::{Loaded, Options, Problem};
use crate::service::Rules;
use crate::telemetry::metrics::Metrics;

/// Takes what a source of rules delivers. Shared by all who deliver.
#[derive(Debug)]
pub struct Loader {
    rules: Rules,
    options: Options,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    status: Mutex<Status>,
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

impl Loader {
    pub fn new(
        rules: Rules,
        options: Options,
        health: Arc<Health>,
        metrics: Arc<Metrics>,
    ) -> Loader {
        Loader { rules, options, health, metrics, status: Mutex::default() }
    }

    /// Compiles `files` and puts them into force, with the counts of the rules before; or tells
    /// every problem, those found on the way to the files (`problems`) first.
    pub fn load(&self, files: Vec<RuleFile>, problems: Vec<Problem>) -> Result<Summary, String> {
        // One set at a time: the counts must come from the set that is replaced.
        let mut status = self.status.lock();
        let loaded = {
            let previous = self.rules.load();
            Loaded::compile(files, problems, &self.options, previous.as_deref())
        };
        for problem in loaded.problems.iter().filter(|problem| !problem.is_error()) {
            tracing::warn!("{problem}; {}", problem.help);
        }
        let now = SystemTime::now();
        if !loaded.is_good() {
            let problems = loaded.render_errors();
            tracing::error!(
                "Error loading new configuration: the rules before stay in force\n{problems}"
            );
            self.metrics.config_load_error.inc();
            status.refused = Some((now, problems.clone()));
            return Err(problems);
        }
        let summary = Summary {
            files: loaded.files.len(),
            domains: loaded.rules.domains(),
            rules: loaded.rules.rules().count(),
        };
        self.rules.store(Some(Arc::new(loaded.rules)));
        *status = Status { loaded: Some((now, summary)), refused: None };
        self.metrics.config_load_success.inc();
        self.health.rules_loaded();
        let Summary { files, domains, rules } = summary;
        tracing::info!(files, domains, rules, "rules are loaded");
        Ok(summary)
    }

    /// The status as JSON, for the debug listener.
    pub fn status(&self) -> serde_json::Value {
        let status = self.status.lock().clone();
        let age = |then: SystemTime| then.elapsed().unwrap_or_default().as_secs();
        json!({
            "serving": self.health.is_serving(),
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
