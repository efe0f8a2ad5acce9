//! Finds what a descriptor without a rule was probably meant to match, for `weir explain` and `/v1/explain`.

use std::collections::HashSet;

use super::trace::{Candidate, Level};
use super::tree::DescriptorKey;
use super::{Domain, MatcherNode, RuleSet};
use crate::model::rule::Rule;
use weir_common::entry::Entry;
use weir_common::suggest::{Suggester, nearest};

/// The most entries whose orders and subsets are tried.
const MAX_ENTRIES: usize = 6;

/// The most look-ups for alternatives of one descriptor.
const MAX_VISITS: usize = 10_000;

/// Why a descriptor has no rule, and what would have one.
#[derive(Debug)]
pub enum NearMiss<'s> {
    /// There are no rules for the domain; the most similar name of a domain with rules.
    Domain(Option<&'s str>),
    /// All entries match a descriptor without a limit and without others below: it is allowed on purpose.
    Exempt(Candidate<'s>),
    /// All entries match, but the rules are deeper: they need one more entry below this descriptor.
    MoreEntries(Candidate<'s>),
    /// The match of the entry at this index has nothing below, so that no rule has as many entries.
    FewerEntries(usize, Candidate<'s>),
    /// The entry at this index comes after those of a rule with `reserve`, which expects this key there.
    Reserve(usize, &'s Rule, &'s str),
    /// No descriptor has the key of the entry at this index; the nearest key.
    Key(usize, Option<&'s str>),
    /// Descriptors have the key of this entry, but not its value; the nearest value.
    Value(usize, Option<&'s str>),
    /// The entries would match a rule in this order.
    Order(Vec<usize>, &'s Rule),
    /// Only these entries would match a rule.
    Subset(Vec<usize>, &'s Rule),
    /// Another descriptor matches an entry too, and leads to a rule, but is tried after the one that matched.
    NotTried(usize, Candidate<'s>, &'s Rule),
    /// The entries match a rule of this other domain.
    OtherDomain(&'s Rule),
}

impl RuleSet {
    /// Returns what a descriptor was probably meant to match, the most likely first; also in up to three other domains.
    pub fn near_misses(&self, domain: &str, entries: &[Entry<'_>]) -> Vec<NearMiss<'_>> {
        let mut found = match self.domain(domain) {
            Some(domain) => domain.near_misses(entries),
            None => vec![NearMiss::Domain(self.nearest_domain(domain, &mut Suggester::default()))],
        };
        let others = self.domains.iter().filter(|(name, _)| &***name != domain);
        let mut others: Vec<_> = others.collect();
        others.sort_unstable_by_key(|(name, _)| *name);
        let matches = others.into_iter().filter_map(|(_, other)| other.find(entries));
        found.extend(matches.take(3).map(|found| NearMiss::OtherDomain(found.rule)));
        found
    }

    /// Returns the name of a domain that is most like this one.
    pub fn nearest_domain(&self, name: &str, suggester: &mut Suggester) -> Option<&str> {
        suggester.nearest(name, self.domains.keys().map(|name| &**name))
    }

    /// Returns whether a descriptor at any level has this key, in one domain or, without one, in any.
    pub fn has_key(&self, domain: Option<&Domain>, key: &str) -> bool {
        let start = format!("{key}_");
        self.roots(domain).any(|root| root.keys().any(|known| known.may_be(&start)))
    }

    /// Returns the key that is most like this one, in one domain or, without one, in any.
    pub fn nearest_key<'s>(
        &'s self,
        domain: Option<&'s Domain>,
        key: &str,
        suggester: &mut Suggester,
    ) -> Option<&'s str> {
        let keys = self.roots(domain).flat_map(MatcherNode::keys).map(DescriptorKey::suggested);
        suggester.nearest(key, keys.collect::<HashSet<_>>().into_iter())
    }

    fn roots<'s>(&'s self, domain: Option<&'s Domain>) -> impl Iterator<Item = &'s MatcherNode> {
        let all = domain.is_none().then(|| self.domains.values()).into_iter().flatten();
        domain.into_iter().chain(all).map(|domain| &domain.root)
    }
}

impl Domain {
    fn near_misses(&self, entries: &[Entry<'_>]) -> Vec<NearMiss<'_>> {
        let mut found = Vec::new();
        let trace = self.trace(entries);
        match (trace.end, trace.steps.last()) {
            (Some(end), _) if end.below.is_empty() => found.push(NearMiss::Exempt(end)),
            (Some(end), _) => found.push(NearMiss::MoreEntries(end)),
            (None, Some(step)) => {
                let at = trace.steps.len() - 1;
                let above = at.checked_sub(1).and_then(|above| trace.steps[above].matched);
                found.extend(above.and_then(|above| near_reserve(at, above, entries)));
                match above.filter(|above| above.below.is_empty()) {
                    Some(_) if !found.is_empty() => {}
                    Some(above) => found.push(NearMiss::FewerEntries(at - 1, above)),
                    None => found.push(near_entry(at, step.level, entries[at])),
                }
            }
            (None, None) => {}
        }
        for (at, step) in trace.steps.iter().enumerate() {
            let mut visits = MAX_VISITS;
            let rest = &entries[at + 1..];
            let mut later = step.later.iter();
            let leading =
                later.find_map(|later| Some((*later, leads_to(*later, rest, &mut visits)?)));
            if let Some((later, rule)) = leading {
                found.push(NearMiss::NotTried(at, later, rule));
                break;
            }
        }
        let count = entries.len();
        if count <= MAX_ENTRIES {
            let matching = |order: Vec<usize>| {
                let selected: Vec<_> = order.iter().map(|&i| entries[i]).collect();
                Some((order, self.find(&selected)?.rule))
            };
            if let Some((order, rule)) = orders(count).into_iter().find_map(matching) {
                found.push(NearMiss::Order(order, rule));
            } else if let Some((subset, rule)) = subsets(count).into_iter().find_map(matching) {
                found.push(NearMiss::Subset(subset, rule));
            }
        }
        found
    }
}

/// Returns what the rule of `above`, if it reserves hits, has instead of the entries from `at` on.
fn near_reserve<'s>(
    at: usize,
    above: Candidate<'s>,
    entries: &[Entry<'_>],
) -> Option<NearMiss<'s>> {
    let rule = above.rule?;
    let reserve = rule.reserve.as_deref()?;
    let wanted = |i: &usize| reserve.next_key(i - at);
    let other = (at..entries.len()).find(|i| wanted(i) != Some(entries[*i].0))?;
    Some(match wanted(&other) {
        Some(key) => NearMiss::Reserve(other, rule, key),
        None => NearMiss::FewerEntries(other - 1, above),
    })
}

fn near_entry<'s>(at: usize, level: Level<'s>, (key, value): Entry<'_>) -> NearMiss<'s> {
    let start = format!("{key}_");
    if level.values(&start).next().is_some() {
        return NearMiss::Value(at, nearest(value, level.values(&start)));
    }
    let keys = level.texts().map(|(text, any_value)| match any_value {
        true => text,
        // Where the key ends is not known: it mostly has no `_` of its own.
        false => text.split('_').next().unwrap_or(text),
    });
    NearMiss::Key(at, nearest(key, keys))
}

/// Returns a rule that the rest of the entries lead to if every match may be taken, not only the first.
fn leads_to<'s>(from: Candidate<'s>, rest: &[Entry<'_>], visits: &mut usize) -> Option<&'s Rule> {
    let reserve = from.rule.and_then(|rule| rule.reserve.as_deref());
    if reserve.is_some_and(|reserve| reserve.takes(rest.iter().map(|(key, _)| *key))) {
        return from.rule;
    }
    let Some((&entry, rest)) = rest.split_first() else { return from.rule };
    *visits = visits.checked_sub(1)?;
    from.below.matches(entry).into_iter().find_map(|next| leads_to(next, rest, visits))
}

/// Returns all orders of `count` entries, except the given one.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = all.into_iter().flat_map(|order: Vec<usize>| {
            let unused = (0..count).filter(|i| !order.contains(i)).collect::<Vec<_>>();
            unused.into_iter().map(move |i| [&order[..], &[i]].concat())
        });
        all = longer.collect();
    }
    all.split_off(1.min(all.len()))
}

/// Returns all sets of some of `count` entries, in their order, the largest first.
fn subsets(count: usize) -> Vec<Vec<usize>> {
    let set = |bits: usize| (0..count).filter(|i| bits >> i & 1 == 1).collect();
    let mut all: Vec<Vec<usize>> = (1..(1_usize << count) - 1).map(set).collect();
    all.sort_by_key(|set| std::cmp::Reverse(set.len()));
    all
}
