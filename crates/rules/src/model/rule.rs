//! A compiled rule: the limits and counters of a descriptor in a rule file. The matcher finds it for a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::reserve::{Reserve, ReserveStep};
use super::stats::{LimitStats, ReserveStats, RuleSeries, RuleStats};
use super::value_set::{Group, ValueSet};
use crate::syntax::position::Origin;
use weir_common::entry::Entry;
use weir_limit::{Ban, Limit, Plan};

/// The `metadata` of a rule, which responses return to Envoy as dynamic metadata.
pub type Metadata = serde_json::Map<String, serde_json::Value>;

/// A descriptor of a rule file with limits, or with `unlimited` and without any.
#[derive(Debug)]
pub struct Rule {
    /// `domain.key_value.key…`, as envoyproxy/ratelimit names it in its metrics.
    pub name: Box<str>,
    pub(crate) domain_length: usize,
    pub(crate) entries: Box<[(Arc<str>, Arc<str>)]>,
    pub(crate) limit_name: Box<str>,
    /// The limits, compiled to be charged together; none for an unlimited rule.
    pub plan: Option<Arc<Plan>>,
    /// The names of rules that this one replaces in a request that matches both.
    pub replaces: Box<[Box<str>]>,
    /// Whether the rule only counts.
    pub shadow_mode: bool,
    /// Whether it is a quota: it denies a request only if all quotas of the request do.
    pub quota_mode: bool,
    /// Whether all values of the request distinguish the metrics of this rule.
    pub detailed_metric: bool,
    /// Whether values that the rule does not name distinguish its metrics.
    pub value_to_metric: bool,
    /// What the rule adds to responses.
    pub metadata: Option<Metadata>,
    /// How its hits are reserved; none if they are not.
    pub reserve: Option<Box<Reserve>>,
    /// Whether hits may be charged ahead of requests, if the limits [can be leased](Plan::can_lease).
    pub lease: bool,
    /// The bans that began; none without `ban`.
    pub bans: Option<Arc<AtomicU64>>,
    /// The counts of the rule's reservations; none without `reserve`.
    pub reserve_stats: Option<Arc<ReserveStats>>,
    /// The network or the list of its last entry.
    pub(crate) set: Option<Arc<ValueSet>>,
    /// The counts of the rule.
    pub stats: Arc<RuleStats>,
    /// The counters by [`Domain::metric_path`](crate::Domain::metric_path); none if that is always the rule's own path.
    pub series: Option<Arc<RuleSeries>>,
    /// The denials by each limit; empty if the rule has only one.
    pub(crate) limit_stats: Box<[LimitStats]>,
    /// Where the rule is written.
    pub origin: Origin,
    /// The patches of the overlay that changed the rule, in the order in which they apply.
    pub patches: Arc<[Origin]>,
}

impl Rule {
    /// The limits; none for an unlimited rule.
    pub fn limits(&self) -> &[Limit] {
        self.plan.as_ref().map_or(&[], |plan| plan.limits())
    }

    /// When its keys are banned; none if they are not.
    pub fn ban(&self) -> Option<&Ban> {
        self.plan.as_ref()?.ban()
    }

    /// The name of the domain.
    pub fn domain(&self) -> &str {
        &self.name[..self.domain_length]
    }

    /// The name without the domain.
    pub fn path(&self) -> &str {
        self.name.get(self.domain_length + 1..).unwrap_or_default()
    }

    /// The number of values of its list; none without a list, or if that was not read.
    pub fn listed_values(&self) -> Option<usize> {
        self.set.as_ref()?.len()
    }

    /// How its addresses are counted, unless each is by itself.
    pub fn group(&self) -> Option<Group> {
        let group = self.set.as_ref()?.group;
        (group != Group::default()).then_some(group)
    }

    /// Keys and values from the root to the rule: a value is empty, or for example `10.0.0.0/8`, `@values` or
    /// `@blocked.txt`.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.entries.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Adds hits that one of its limits denied, or would have denied but for shadow mode.
    pub fn count_denied(&self, limit: u8, hits: u64) {
        if let Some(stats) = self.limit_stats.get(usize::from(limit)) {
            stats.over_limit.fetch_add(hits, Ordering::Relaxed);
        }
    }

    /// The name of one of its limits; empty if it has none.
    pub fn limit_name(&self, limit: u8) -> &str {
        self.limits().get(usize::from(limit)).map_or("", |limit| &limit.name)
    }

    /// Whether the rule or one of its limits has one of these names.
    pub fn is_named_by(&self, names: &[&str]) -> bool {
        let limits = self.limits().iter().map(|limit| &limit.name);
        limits.chain([&self.limit_name]).any(|name| names.contains(&&**name))
    }

    /// Returns the step of a descriptor of this rule with that many entries; none without `reserve`.
    pub fn reserve_step(&self, entries: usize) -> Option<ReserveStep> {
        let reserve = self.reserve.as_deref()?;
        let further = entries.saturating_sub(self.entries.len());
        Some(match further + usize::from(reserve.has_own_id) {
            0 => ReserveStep::NoId,
            1 => ReserveStep::Reserve,
            _ => ReserveStep::Settle,
        })
    }

    /// Returns how many entries are part of the key: all but the id of a reservation and the mark of a settling call.
    pub fn counted_entries(&self, entries: usize) -> usize {
        match self.reserve.as_deref() {
            None => entries,
            Some(reserve) => entries.min(self.entries.len() - usize::from(reserve.has_own_id)),
        }
    }
}
