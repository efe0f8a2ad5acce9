//! A compiled rule set: the rules of all domains, by which requests are decided until the next load.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::matcher::MatcherNode;
use crate::model::rule::Rule;
use crate::model::stats::{RuleSeries, RuleSeriesLimit};
use crate::syntax::position::Origin;
use weir_common::entry::Entry;
use weir_common::failure::OnStoreFailure;
use weir_limit::Calendar;

/// An immutable, compiled set of rules. Threads share one, and a new one replaces it as a whole.
#[derive(Debug, Default)]
pub struct RuleSet {
    pub(crate) domains: HashMap<Box<str>, Domain>,
    pub(crate) rules: Vec<Arc<Rule>>,
    /// The maximum number of values of requests that are counted separately for metrics.
    pub(crate) series: Arc<RuleSeriesLimit>,
    /// The calendar for months of limits that requests bring along; none without `calendar_months` of the options.
    pub calendar_month: Option<Arc<Calendar>>,
}

/// The rules of one domain.
#[derive(Debug, Default)]
pub struct Domain {
    /// Whether either all descriptors of a request are charged or none.
    pub together: bool,
    /// The failure policy; none if the settings decide.
    pub on_store_failure: Option<OnStoreFailure>,
    /// The patches of the overlay (an operator's changes of rules) that changed the fields above.
    pub patches: Box<[Origin]>,
    /// The counters of limits that requests bring along, by [`override_path`](Self::override_path).
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

/// The rule that a descriptor matches.
#[derive(Clone, Copy, Debug)]
pub struct Found<'s> {
    /// The rule.
    pub rule: &'s Rule,
    /// Whether the key has another text for a value: a pattern with `share_threshold`, or an address's canonical form.
    pub replaces_values: bool,
}

impl Domain {
    /// Finds the rule that all of `entries` match.
    pub fn find(&self, entries: &[Entry<'_>]) -> Option<Found<'_>> {
        let mut replaces_values = false;
        let rule = self.root.walk(entries, |_, _| replaces_values = true)?;
        Some(Found { rule, replaces_values })
    }

    /// Returns the values that the key of a descriptor has in place of its own, with the indices of their entries.
    /// That is the pattern of a wildcard, a network or a list with `share_threshold`, and an address in its canonical
    /// form, or its network by `group`.
    pub fn key_values(&self, entries: &[Entry<'_>]) -> Vec<(usize, Cow<'_, str>)> {
        let mut values = Vec::new();
        self.root.walk(entries, |i, value| values.push((i, value.text(entries[i].1))));
        values
    }
}
