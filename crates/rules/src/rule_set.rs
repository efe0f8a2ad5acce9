//! A compiled set of rules, and its domains.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::matcher::node::MatcherNode;
use crate::model::rule::Rule;
use crate::model::stats::{RuleSeries, RuleSeriesBudget};
use crate::syntax::position::Origin;
use weir_common::failure::OnStoreFailure;
use weir_limit::Calendar;

/// An immutable, compiled set of rules. Threads share one, and a new one replaces it as a whole.
#[derive(Debug, Default)]
pub struct RuleSet {
    pub(crate) domains: HashMap<Box<str>, Domain>,
    pub(crate) rules: Vec<Arc<Rule>>,
    /// The budget of all series that values of requests distinguish.
    pub(crate) series: Arc<RuleSeriesBudget>,
    /// The calendar of the months of limits that clients send; none without `calendar_months` of the options.
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
    pub(crate) root: MatcherNode,
    pub(crate) replace_dots: bool,
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
}
