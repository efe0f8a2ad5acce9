//! The options by which rules are compiled. The service takes them from its settings, commands from their arguments.

use std::sync::Arc;

use crate::overlay::Overlay;
use crate::source::lists::{Lists, WatchedLists};
use crate::syntax::problem::DEFAULT_MAX_PROBLEMS;

/// Options of compilation.
#[derive(Clone, Debug)]
pub struct RuleOptions {
    /// Whether several files may have the same domain.
    pub merge_domains: bool,
    /// The maximum memory of one key in the store, in bytes. Limits that may take more are errors.
    pub max_log_bytes: u64,
    /// The maximum number of errors, and of warnings, listed per file.
    pub max_problems: usize,
    /// The maximum number of rules, and values of requests counted separately, that have metrics of their own.
    pub max_series: usize,
    /// Whether to warn about what is valid, but probably not meant.
    pub lint: bool,
    /// Whether `shadow_mode` in `rate_limit` is an error, not a warning: it has no effect there, so the limit denies.
    pub rejects_ignored_shadow_mode: bool,
    /// The part of a limit from which on decisions list it as near its maximum; none to list none.
    pub near_limit_ratio: Option<f32>,
    /// Whether fixed windows of a month are those of the calendar, in UTC, unless a rule says otherwise.
    pub calendar_months: bool,
    /// Whether the dots of keys and values become underscores in the names of rules in metrics.
    pub replace_dots: bool,
    /// Where the lists are: files of values that rules name by `values_file`.
    pub lists: Lists,
    /// The lists as a service reads them: again and again, once they are whole. None to read each as it is.
    pub watched_lists: Option<Arc<WatchedLists>>,
    /// The overlay whose patches change the rules, if there is one.
    pub overlay: Option<Overlay>,
}

impl Default for RuleOptions {
    fn default() -> Self {
        RuleOptions {
            merge_domains: false,
            max_log_bytes: 16 << 20,
            max_problems: DEFAULT_MAX_PROBLEMS,
            max_series: 10_000,
            lint: false,
            rejects_ignored_shadow_mode: false,
            near_limit_ratio: None,
            calendar_months: false,
            replace_dots: false,
            lists: Lists::None,
            watched_lists: None,
            overlay: None,
        }
    }
}
