//! What is limited: rule files, what is wrong with them, and the matcher they compile to.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicU64},
};

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
    pub metadata: Option<Metadata>,
    pub stats: Arc<Stats>,
}

/// What a rule says of itself for dynamic metadata.
pub type Metadata = serde_json::Map<String, serde_json::Value>;

/// Counts of one rule; kept across reloads by the rule's name.
#[derive(Debug, Default)]
pub struct Stats {
    pub total_hits: AtomicU64,
    pub over_limit: AtomicU64,
    pub near_limit: AtomicU64,
    pub within_limit: AtomicU64,
    pub shadow_mode: AtomicU64,
    pub over_limit_with_local_cache: AtomicU64,
}

impl Rule {
    /// The name of one of its limits; empty for none.
    pub fn limit_name(&self, limit: u8) -> &str {
        let plan = self.plan.as_ref();
        plan.and_then(|plan| plan.limits().get(usize::from(limit))).map_or("", |limit| &limit.name)
    }

    /// Whether the rule, or one of its limits, goes by one of these names.
    pub fn is_named_by(&self, names: &[&str]) -> bool {
        let plan = self.plan.as_ref();
        plan.is_some_and(|plan| plan.limits().iter().any(|limit| names.contains(&&*limit.name)))
    }
}

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
