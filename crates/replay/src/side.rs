//! One side of a comparison by `weir replay --compare`: a set of rules, and counts of what it denies. Without it
//! there is only one.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::FutureExt;
use hashbrown::HashMap;

use super::report::{RuleCount, RuleReport, SideReport};
use super::tally::{KeyMemory, Series, Tally, Timeline};
use weir_common::clock::ManualClock;
use weir_common::descriptor::write_descriptor;
use weir_common::entry::Entry;
use weir_common::truncate::truncated;
use weir_limiter::{Descriptor, Holds, Limiter, Request, TakenHolds};
use weir_rules::{Rule, RuleSet};
use weir_store::recording::RecordingStore;

/// The most bytes for the names of denied keys, of one set of rules.
const KEY_BYTES: usize = 256 << 20;

/// Longer names of keys are cut.
const MAX_KEY_BYTES: usize = 512;

/// The timeout of the store, which is never reached: the store is in memory, and answers at once.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Side {
    name: String,
    rules: RuleSet,
    /// Indices of rules by their addresses in memory.
    indices: HashMap<usize, usize>,
    limiter: Limiter<RecordingStore>,
    clock: Arc<ManualClock>,
    denied: Tally,
    tallies: Vec<RuleTally>,
    unmatched: u64,
    unmatched_example: Option<String>,
    keys: KeyMemory,
    /// Reused for the names of denied keys.
    key: String,
}

#[derive(Debug, Default)]
struct RuleTally {
    requests: u64,
    series: Series,
    denied: Tally,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub is_denied: bool,
    /// The first rule that denied it.
    denied_by: Option<DeniedBy>,
}

#[derive(Clone, Copy, Debug)]
struct DeniedBy {
    rule: usize,
    descriptor: usize,
    /// How many of its entries the rule counts.
    counted: usize,
}

impl DeniedBy {
    fn counted<'d>(&self, descriptors: &[Descriptor<'d>]) -> &'d [Entry<'d>] {
        &descriptors[self.descriptor].entries[..self.counted]
    }
}

impl Side {
    pub fn new(name: String, rules: RuleSet, max_keys: usize) -> Side {
        // From here, the store's times reach beyond 2100.
        let clock = Arc::new(ManualClock::new(0));
        // Statuses do not say what a rule in shadow mode would have done.
        let has_shadow_rules = rules.rules().any(is_shadow);
        let store = RecordingStore::new(clock.clone(), max_keys, has_shadow_rules);
        let indices: HashMap<usize, usize> =
            rules.rules().enumerate().map(|(i, rule)| (address(rule), i)).collect();
        Side {
            name,
            tallies: indices.iter().map(|_| RuleTally::default()).collect(),
            indices,
            rules,
            limiter: Limiter::new(store, weir_limiter::LimiterOptions::default()),
            clock,
            denied: Tally::default(),
            unmatched: 0,
            unmatched_example: None,
            keys: KeyMemory(KEY_BYTES),
            key: String::new(),
        }
    }

    /// Returns the entries of a descriptor that are counted separately.
    pub fn counted<'e, 'd>(&self, domain: &str, entries: &'e [Entry<'d>]) -> &'e [Entry<'d>] {
        let found = self.rules.domain(domain).and_then(|domain| domain.find(entries));
        found.map_or(entries, |found| &entries[..counted_entries(found.rule, entries.len())])
    }

    /// The values that the counter of a descriptor has in place of its own, with the indices of their entries.
    pub fn key_values(&self, domain: &str, entries: &[Entry<'_>]) -> Vec<(usize, Cow<'_, str>)> {
        self.rules.domain(domain).map_or_else(Vec::new, |domain| domain.key_values(entries))
    }

    /// Decides a request at the time of the timeline, and counts it.
    pub fn decide(
        &mut self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        hits: u32,
        timeline: &Timeline,
    ) -> Result<Outcome, String> {
        self.clock.set(timeline.now);
        let request = Request { domain, descriptors, hits_addend: hits, ..Request::default() };
        let (limiter, mut holds) = (&self.limiter, Holds::default());
        let decided =
            limiter.decide(Some(&self.rules), &request, STORE_TIMEOUT, &mut holds).now_or_never();
        if let Some(denied) = holds.as_mut().and_then(TakenHolds::denied) {
            denied.release(limiter.store()).now_or_never();
        }
        let decided = decided.ok_or("the memory store did not answer")?;
        let decision = decided.map_err(|error| error.to_string())?;
        let (mut denied_by, mut denied_by_quota) = (None, None);
        let answers = self.limiter.store().answers();
        // Only descriptors with a limit are charged.
        let mut answers = answers.iter();
        for (i, status) in decision.statuses.iter().enumerate() {
            let answer = status.limit.and_then(|_| answers.next()?.as_ref().ok());
            let Some(rule) = status.rule else {
                self.unmatched += 1;
                self.unmatched_example
                    .get_or_insert_with(|| key_name(descriptors[i].entries, String::new()));
                continue;
            };
            let Some(&index) = self.indices.get(&address(rule)) else { continue };
            let Some(tally) = self.tallies.get_mut(index) else { continue };
            tally.requests += 1;
            tally.series.add(timeline);
            let is_over = match is_shadow(rule) {
                true => answer.is_some_and(|answer| !answer.allowed || answer.would_deny > 0),
                false => status.over_limit,
            };
            let entries = descriptors[i].entries;
            let counted = counted_entries(rule, entries.len());
            if is_over {
                self.key = key_name(&entries[..counted], std::mem::take(&mut self.key));
                tally.denied.add(timeline);
                tally.denied.add_key(&self.key, &mut self.keys);
            }
            if status.over_limit {
                // Quotas deny a request only if all of them do.
                let by: &mut Option<_> =
                    if status.quota { &mut denied_by_quota } else { &mut denied_by };
                by.get_or_insert(DeniedBy { rule: index, descriptor: i, counted });
            }
        }
        let denied_by = denied_by.or(denied_by_quota);
        if decision.over_limit {
            self.denied.add(timeline);
            if let Some(by) = &denied_by {
                self.key = key_name(by.counted(descriptors), std::mem::take(&mut self.key));
                self.denied.add_key(&self.key, &mut self.keys);
            }
        }
        Ok(Outcome { is_denied: decision.over_limit, denied_by })
    }

    /// Counts a request that this side denies and the other one lets pass.
    pub fn count_difference(
        &mut self,
        outcome: &Outcome,
        descriptors: &[Descriptor<'_>],
        timeline: &Timeline,
        difference: &mut DifferenceTally,
    ) {
        difference.total.add(timeline);
        let Some(by) = &outcome.denied_by else { return };
        *difference.by_rule.entry(by.rule).or_default() += 1;
        self.key = key_name(by.counted(descriptors), std::mem::take(&mut self.key));
        difference.total.add_key(&self.key, &mut self.keys);
    }

    /// The rules of a difference by name, most denied first.
    pub fn named(&self, difference: &DifferenceTally) -> Vec<RuleCount> {
        let count = |(i, rule): (usize, &Rule)| {
            let requests = *difference.by_rule.get(&i)?;
            Some(RuleCount { name: rule.name.to_string(), requests })
        };
        let mut rules: Vec<_> = self.rules.rules().enumerate().filter_map(count).collect();
        rules.sort_by_key(|rule| Reverse(rule.requests));
        rules
    }

    /// The names of rules with a concurrency limit that requests matched.
    pub fn concurrency_rules(&self) -> Vec<String> {
        std::iter::zip(self.rules.rules(), &self.tallies)
            .filter(|(rule, tally)| {
                let plan = rule.plan.as_ref();
                tally.requests > 0 && plan.is_some_and(|plan| plan.concurrency().is_some())
            })
            .map(|(rule, _)| rule.name.to_string())
            .collect()
    }

    /// How often a counter in use was dropped because there were too many.
    pub fn evicted(&self) -> u64 {
        let evicted = self.limiter.store().stats().evicted;
        evicted.live + evicted.full
    }

    /// The rules with a request, most denied first. `requests` were decided.
    pub fn finish(self, timeline: &Timeline, requests: u64) -> SideReport {
        let all = self.tallies.len();
        let mut rules: Vec<RuleReport> = std::iter::zip(self.rules.rules(), self.tallies)
            .filter(|(_, tally)| tally.requests > 0)
            .map(|(rule, tally)| RuleReport {
                name: rule.name.to_string(),
                origin: rule.origin.to_string(),
                limits: rule.limits_text(),
                is_shadow: is_shadow(rule),
                requests: tally.requests,
                denied: tally.denied.finish(timeline, tally.requests),
                bans: rule.bans.as_ref().map(|bans| bans.load(Relaxed)),
                series: tally.series.finish(timeline),
            })
            .collect();
        // Stable: rules that deny equally many stay in the order of the files.
        rules.sort_by_key(|rule| {
            (rule.is_shadow, Reverse(rule.denied.requests), Reverse(rule.requests))
        });
        SideReport {
            files: self.name,
            denied: self.denied.finish(timeline, requests),
            unused_rules: all - rules.len(),
            rules,
            unmatched_descriptors: self.unmatched,
            unmatched_example: self.unmatched_example,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct DifferenceTally {
    pub total: Tally,
    /// By the index of the rule that denies.
    pub by_rule: HashMap<usize, u64>,
}

fn address(rule: &Rule) -> usize {
    std::ptr::from_ref(rule).addr()
}

/// Returns how many of a descriptor's entries a rule counts: not the id of a hold or of a reservation.
fn counted_entries(rule: &Rule, entries: usize) -> usize {
    let names_hold = rule.plan.as_ref().is_some_and(|plan| plan.hold_id().is_some());
    rule.counted_entries(entries).saturating_sub(names_hold.into())
}

/// Whether a rule denies nothing: it and its limits only report.
fn is_shadow(rule: &Rule) -> bool {
    let limits = rule.plan.as_ref().map(|plan| plan.limits());
    rule.shadow_mode || limits.is_some_and(|limits| limits.iter().all(|limit| limit.shadow_mode))
}

/// Writes a descriptor as commands take it, cut if it is long. `name` is reused.
fn key_name(entries: &[Entry<'_>], mut name: String) -> String {
    name.clear();
    write_descriptor(entries, &mut name);
    truncated(name, MAX_KEY_BYTES)
}
