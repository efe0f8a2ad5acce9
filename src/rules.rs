//! What is limited: rule files, what is wrong with them, and the matcher they compile to.

use std::{collections::HashMap, sync::Arc};

use smallvec::SmallVec;

use crate::limit::Plan;
use crate::store::Entry;

/// An immutable set of rules, compiled. Swapped whole.
#[derive(Debug, Default)]
pub struct RuleSet {
    domains: HashMap<Box<str>, Domain>,
}

/// The rules of one domain.
#[derive(Debug, Default)]
pub struct Domain {
    /// Whether all descriptors of a request are charged or none.
    pub together: bool,
}

/// A node of a rule file that has limits, or lifts them.
#[derive(Debug)]
pub struct Rule {
    /// `domain.key_value.key…`, as the reference names it in its metrics.
    pub name: Box<str>,
    /// What to charge; none where the rule is unlimited.
    pub plan: Option<Arc<Plan>>,
    /// Names of rules this one sets aside, in the same request.
    pub replaces: Box<[Box<str>]>,
    pub shadow_mode: bool,
    pub quota_mode: bool,
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    pub stats: Stats,
}

/// Counts of one rule; kept across reloads by the rule's name.
pub type Stats = Arc<()>;

/// What a descriptor matched.
#[derive(Debug)]
pub struct Found<'s> {
    pub rule: &'s Rule,
    /// Entries whose value the key replaces by a pattern (share_threshold): which, and by what.
    pub shared: SmallVec<[(usize, &'s str); 2]>,
}

impl RuleSet {
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }
}

impl Domain {
    /// The rule that the whole of `entries` matches, if any.
    pub fn find(&self, _entries: &[Entry<'_>]) -> Option<Found<'_>> {
        None
    }
}
