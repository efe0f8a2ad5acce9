//! Rules: rule files and xDS resources, their problems, and the matcher that they compile to.
//!
//! A [`Document`] becomes a tree whose nodes have positions. The reader walks the tree once, reports
//! every problem, and adds the rules to the matcher of their domain.
//!
//! `syntax`, `model`, `matcher` and [`source`] each use only those before them. `read` also uses the patches of
//! `overlay`, which are on top of the model. What compiles, lints, compares and writes whole sets is on top of all.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod compare;
mod compile;
mod describe;
mod lint;
mod matcher;
mod metrics;
mod model;
mod overlay;
pub mod rate;
mod read;
mod schema;
pub mod source;
mod syntax;
#[cfg(test)]
mod tests;
mod to_yaml;

pub use compare::{Change, Difference, ListedRule, compare};
pub use compile::Loaded;
pub use describe::{LimitDescription, RuleDescription, RuleOfDomain};
pub use matcher::near_miss::NearMiss;
pub use matcher::{Candidate, Found, Level, Step, Trace, Within};
pub use metrics::{HitTotals, RuleTotals, collect_metrics, totals};
pub use model::proto;
pub use model::reserve::{Reserve, ReserveStep};
pub use model::rule::{Metadata, Rule};
pub use model::stats::{ReserveCounts, ReserveStats, RuleSeries, RuleStats};
pub use model::value_set::{Group, MatchKind};
pub use overlay::{Overlay, OverlayError, OverlayReport};
pub use schema::json_schema;
pub use source::lists::{ListFile, Lists, WatchedLists};
pub use source::manifest::SourceFile;
pub use source::{YAML_HEADER, xds};
pub use syntax::document::Document;
pub use syntax::position::{Origin, Position};
pub use syntax::problem::{DEFAULT_MAX_PROBLEMS, Omitted, Problem, Problems, Severity, truncated};
pub use syntax::{tree, values, yaml};

use std::fmt::Write;
use std::hash::Hasher;
use std::sync::Arc;

use hashbrown::HashMap;
use siphasher::sip::SipHasher13;

use weir_common::failure::OnStoreFailure;
use weir_limit::Calendar;

/// An immutable, compiled set of rules. Threads share one, and a new one replaces it as a whole.
#[derive(Debug, Default)]
pub struct RuleSet {
    domains: HashMap<Box<str>, Domain>,
    rules: Vec<Arc<Rule>>,
    /// The budget of all series that values of requests distinguish.
    series: Arc<model::stats::RuleSeriesBudget>,
    /// The calendar of the months of limits that clients send; none without [`Options::calendar_months`].
    pub calendar_month: Option<Arc<Calendar>>,
}

/// The rules of one domain.
#[derive(Debug, Default)]
pub struct Domain {
    /// Whether either all descriptors of a request are charged or none.
    pub together: bool,
    /// The failure policy; none if the settings decide.
    pub on_store_failure: Option<OnStoreFailure>,
    /// The patches of the overlay that changed these.
    pub patches: Box<[Origin]>,
    /// The counters of limits sent with requests, by [`override_path`](Self::override_path).
    pub override_series: Option<Arc<RuleSeries>>,
    root: matcher::MatcherNode,
    replace_dots: bool,
}

/// Options of compilation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether several files may have the same domain.
    pub merge_domains: bool,
    /// The maximum state of one key, in bytes.
    pub max_log_bytes: u64,
    /// The maximum number of errors, and of warnings, listed per file.
    pub max_problems: usize,
    /// The maximum number of rules and series that have metrics of their own.
    pub max_series: usize,
    /// Whether to warn about what is valid, but probably not meant.
    pub lint: bool,
    /// Whether `shadow_mode` in `rate_limit` is an error, not a warning: it has no effect there, so the limit denies.
    pub rejects_ignored_shadow_mode: bool,
    /// The part of a limit's capacity from which on decisions tell that a limit is near it; none if they need not.
    pub near_limit_ratio: Option<f32>,
    /// Whether fixed windows of a month are those of the calendar, in UTC, unless a rule says otherwise.
    pub calendar_months: bool,
    /// Whether the dots of keys and values are underscores in the paths of metrics.
    pub replace_dots: bool,
    /// Where the lists are that rules name by `values_file`.
    pub lists: Lists,
    /// The lists of a service; none to read each as it is.
    pub watched_lists: Option<Arc<WatchedLists>>,
    /// The overlay whose patches change the rules, if there is one.
    pub overlay: Option<Overlay>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
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

impl RuleSet {
    /// Returns the domain of this name, if there are rules for it.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// Returns the domain if there is one alone.
    pub fn only_domain(&self) -> Option<&str> {
        let mut names = self.domains.keys();
        names.next().filter(|_| names.len() == 0).map(|name| &**name)
    }

    /// The number of domains.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// All rules, in the order of the files.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter().map(AsRef::as_ref)
    }

    /// Returns the rule at a position in the order of the files.
    pub fn rule(&self, position: usize) -> Option<&Rule> {
        self.rules.get(position).map(AsRef::as_ref)
    }

    /// Lists the rules, one a line, in the format of the reference's `/rlconfig`, and appends what that cannot show.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        for rule in self.rules() {
            let limit = rule.limits().first();
            let unit = limit.and_then(|limit| limit.unit).map_or("unknown", |unit| unit.name());
            let _ = write!(
                out,
                "{}: unit={} requests_per_unit={}, shadow_mode: {}, quota_mode: {}",
                rule.name,
                unit.to_ascii_uppercase(),
                limit.map_or(0, |limit| limit.requests_per_unit),
                rule.shadow_mode,
                rule.quota_mode,
            );
            out += &describe::extensions(rule, self.domain(rule.domain()));
            out.push('\n');
        }
        out
    }
}

/// Hashes the concatenation of texts. SipHash reads bytes as one stream, so boundaries between the texts
/// do not matter. Its key may be public, because only rules are inserted.
pub(crate) fn hash(texts: &[&str]) -> u64 {
    let mut hasher = SipHasher13::new();
    texts.iter().for_each(|text| hasher.write(text.as_bytes()));
    hasher.finish()
}
