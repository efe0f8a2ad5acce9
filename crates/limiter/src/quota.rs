//! What applies to a bucket of a quota stream: a client that is granted hits ahead of time, decides by itself, and
//! reports what it has admitted and denied.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::applied::look_up;
use crate::limiter::Limiter;
use crate::lookup::{KeyValues, Match, Matched};
use crate::request::{Descriptor, Request};
use crate::stats::{add, count_rule};
use weir_common::entry::OwnedEntry;
use weir_common::failure::OnStoreFailure;
use weir_controls::ActiveView;
use weir_limit::Plan;
use weir_rules::{Domain, Found, RuleStats, UnorderedMatch};
use weir_store::{Entry, Store};
use weir_top::{Outcome, Recorded};

/// What applies to a bucket, in the order of precedence.
#[derive(Clone, Debug)]
pub enum BucketQuota {
    /// No rule, an unlimited one, or a control allows it.
    Allowed,
    /// A control blocks it.
    Blocked,
    /// It cannot be divided among clients.
    Unsupported {
        /// The path of its rule; empty if that is not known.
        rule: String,
        /// Why not.
        why: &'static str,
    },
    /// Everything passes, and is charged afterwards: the rule, or weir, is in shadow mode.
    Shadow(BucketKey),
    /// The client gets parts of the limits.
    Limited(BucketKey),
}

/// The key that a bucket is charged to.
#[derive(Clone, Debug)]
pub struct BucketKey {
    /// The limits.
    pub plan: Arc<Plan>,
    /// The entries of the key, in the order of the rule.
    pub entries: Vec<OwnedEntry>,
    /// The failure policy of the domain, if it has one.
    pub on_failure: Option<OnStoreFailure>,
}

impl BucketQuota {
    /// Returns the key that usage is charged to; none if it is not charged.
    pub fn key(&self) -> Option<&BucketKey> {
        match self {
            Self::Shadow(key) | Self::Limited(key) => Some(key),
            Self::Allowed | Self::Blocked | Self::Unsupported { .. } => None,
        }
    }
}

impl BucketKey {
    /// Returns the entries of the key, in the order of the rule.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.entries.iter().map(|entry| (&*entry.key, &*entry.value))
    }
}

/// What a client has decided about a bucket since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The requests that it admitted.
    pub admitted: u64,
    /// The requests that it denied.
    pub denied: u64,
}

impl Usage {
    /// Adds another usage, up to what can be charged at once.
    pub fn add(&mut self, other: Usage) {
        let sum = |one: u64, other: u64| one.saturating_add(other).min(u32::MAX.into());
        self.admitted = sum(self.admitted, other.admitted);
        self.denied = sum(self.denied, other.denied);
    }
}

impl<S: Store> Limiter<S> {
    /// Looks up the bucket of an unordered map of entries as a request with them alone, and counts what a client reports
    /// of it as the hits of such requests.
    pub fn bucket_quota(
        &self,
        active: ActiveView<'_>,
        domain: &str,
        bucket: &[Entry<'_>],
        usage: Usage,
    ) -> BucketQuota {
        let Some(rules) = active.rules.domain(domain) else { return BucketQuota::Allowed };
        let order = match rules.find_unordered(bucket) {
            UnorderedMatch::None => return BucketQuota::Allowed,
            UnorderedMatch::One(order) => order,
            UnorderedMatch::Several(orders) => {
                let path = |order: &[usize]| {
                    let entries: Vec<Entry<'_>> = order.iter().map(|at| bucket[*at]).collect();
                    rules.find(&entries).map_or("", |found| found.rule.path())
                };
                let [one, other] = orders.each_ref().map(|order| path(order));
                let why = "its entries match two rules, each in another order";
                return BucketQuota::Unsupported { rule: format!("{one}, {other}"), why };
            }
            UnorderedMatch::TooMany => {
                let why = "its entries may have too many orders";
                return BucketQuota::Unsupported { rule: String::new(), why };
            }
        };
        let entries: SmallVec<[Entry<'_>; 4]> =
            order.iter().filter_map(|at| bucket.get(*at).copied()).collect();
        let descriptor = Descriptor { entries: &entries, ..Descriptor::default() };
        let descriptors = std::slice::from_ref(&descriptor);
        let request = Request { domain, descriptors, ..Request::default() };
        let mut key_values: KeyValues<'_> = None;
        let Ok(lookup) = look_up(active, &request, &mut key_values) else {
            return BucketQuota::Allowed;
        };
        let Some(matched) = lookup.matched.first() else { return BucketQuota::Allowed };
        if usage != Usage::default() {
            self.count_usage(domain, rules, matched, usage);
        }
        let key = |plan: &Arc<Plan>| BucketKey {
            plan: plan.clone(),
            entries: OwnedEntry::copied(matched.counted_entries(plan).iter().copied()),
            on_failure: rules.on_store_failure,
        };
        let unsupported = |why| BucketQuota::Unsupported { rule: matched.path().to_owned(), why };
        let is_shadow = self.options.shadow_mode
            || matched.is_allowed()
            || matched.applies.rule().is_some_and(|rule| rule.shadow_mode);
        match matched.plan() {
            _ if matched.is_blocked() && !self.options.shadow_mode => BucketQuota::Blocked,
            None => BucketQuota::Allowed,
            Some(_) if matched.reserves => unsupported("its rule has `reserve`"),
            Some(plan) if is_shadow => BucketQuota::Shadow(key(plan)),
            Some(_) if rules.together => unsupported("its domain charges together"),
            Some(plan) if !plan.can_grant() => {
                unsupported("it needs windows of at least 30 s that can be leased")
            }
            Some(plan) => BucketQuota::Limited(key(plan)),
        }
    }

    /// Counts usage for the rule of a bucket, and for the key in the lists of top keys.
    fn count_usage(&self, domain: &str, rules: &Domain, matched: &Matched<'_, '_>, usage: Usage) {
        if let Match::Rule(Found { rule, .. }) = &matched.applies {
            count_rule(rule, Some(rules), matched, |stats| add_usage(stats, usage));
        }
        let (Some(top), Some(plan)) = (&self.top, matched.counted_plan()) else { return };
        let (entries, rule) = (matched.counted_entries(plan), matched.path());
        for (hits, outcome) in
            [(usage.admitted, Outcome::Admitted(&[])), (usage.denied, Outcome::Denied)]
        {
            if hits > 0 {
                top.record(&Recorded { domain, entries, rule, hits, outcome });
            }
        }
    }
}

fn add_usage(stats: &RuleStats, Usage { admitted, denied }: Usage) {
    add(&stats.total_hits, admitted.saturating_add(denied));
    add(&stats.within_limit, admitted);
    add(&stats.over_limit, denied);
}
