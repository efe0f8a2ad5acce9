//! Finds what applies to each descriptor of a request: a rule, a limit sent along, and a control (an operator's block,
//! allow or other limit). Allocates only if the key has other values than the request.

use std::borrow::Cow;
use std::iter::zip;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::options::LimiterOptions;
use crate::request::{Descriptor, Request};
use weir_controls::{CompiledControls, Effect};
use weir_limit::{Decision, Op, Plan};
use weir_rules::{Domain, Found, ReserveStats, Rule, RuleSet};
use weir_store::Entry;

/// The descriptors of a request, each with what applies to it.
#[derive(Default)]
pub(super) struct Lookup<'s, 'r> {
    /// The domain of the request; none if no rules are loaded for it.
    pub domain: Option<&'s Domain>,
    pub matched: SmallVec<[Matched<'s, 'r>; 4]>,
    /// Whether a control denies the request.
    pub is_blocked: bool,
}

/// For each descriptor, the values that its key has in place of those of the request, with the indices of
/// their entries. None until a look-up that borrows it needs some.
pub(super) type KeyValues<'s> = Option<Box<[Vec<(usize, Cow<'s, str>)>]>>;

/// What applies to a descriptor.
pub(super) enum Match<'s> {
    /// No rule, or one that another rule of the request replaces.
    Nothing,
    Rule(Found<'s>),
    Override(Arc<Plan>),
}

impl<'s> Match<'s> {
    pub fn rule(&self) -> Option<&'s Rule> {
        match self {
            Match::Rule(found) => Some(found.rule),
            _ => None,
        }
    }

    pub fn plan(&self) -> Option<&Arc<Plan>> {
        match self {
            Match::Nothing => None,
            Match::Rule(found) => found.rule.plan.as_ref(),
            Match::Override(plan) => Some(plan),
        }
    }

    fn replaces_values(&self) -> bool {
        matches!(self, Match::Rule(found) if found.replaces_values)
    }

    /// In the global quota mode a descriptor without a match is a quota; one with an unlimited rule never is.
    fn is_quota(&self, options: &LimiterOptions) -> bool {
        match self {
            Match::Rule(found) if found.rule.plan.is_none() => false,
            Match::Rule(found) => options.quota_mode || found.rule.quota_mode,
            _ => options.quota_mode,
        }
    }
}

/// A descriptor and what applies to it.
pub(super) struct Matched<'s, 'r> {
    pub applies: Match<'s>,
    pub descriptor: &'r Descriptor<'r>,
    pub op: Op,
    /// Whether the descriptor's entries or its request may name a reservation.
    pub reserves: bool,
    pub is_quota: bool,
    pub effect: Option<Effect<'s>>,
    /// The entries of the key if they are not the request's: a shared pattern, or an address in its canonical form.
    key_entries: Option<Box<[Entry<'r>]>>,
}

impl<'s, 'r> Matched<'s, 'r> {
    /// The limits to charge, if any.
    #[inline]
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        match &self.effect {
            None => self.applies.plan(),
            // What a control allows is no strike.
            Some(Effect::Allow { count: true, .. }) => {
                self.applies.plan().map(Plan::without_strikes)
            }
            Some(Effect::Limit { plan, .. }) => Some(plan),
            Some(Effect::Block { .. } | Effect::Allow { .. }) if self.op.returns_hits() => {
                self.plan_to_return()
            }
            Some(Effect::Block { .. } | Effect::Allow { .. }) => None,
        }
    }

    /// The limits whose hits are returned or released although a control decides. What was never taken is not
    /// refunded; a hold is known by its id, and so is a reservation.
    #[cold]
    fn plan_to_return(&self) -> Option<&Arc<Plan>> {
        let refunds_hold = |plan: &&Arc<Plan>| self.is_allowed() && plan.hold_id().is_some();
        self.applies.plan().filter(|plan| self.settles() || refunds_hold(plan))
    }

    /// The limits whose counts operators see, charged or not.
    pub fn counted_plan(&self) -> Option<&Arc<Plan>> {
        match &self.effect {
            Some(Effect::Limit { plan, .. }) => Some(plan),
            _ => self.applies.plan(),
        }
    }

    pub fn is_allowed(&self) -> bool {
        matches!(self.effect, Some(Effect::Allow { .. }))
    }

    /// Sets what a control does to it. Returns whether a block spares it.
    fn control(&mut self, request: &Request<'_>, controls: &'s CompiledControls) -> bool {
        // A limit that was sent obeys only blocks and allowances.
        let plan = self.applies.rule().and_then(|rule| rule.plan.as_ref());
        let (entries, returns_hits) = match self.reserves {
            false => (self.descriptor.entries, self.op.returns_hits()),
            // Whatever the id.
            true => (self.split_id().0, self.settles()),
        };
        let sent = request.descriptors.iter().map(|sent| sent.entries);
        let (effect, is_spared) = controls.find(request.domain, entries, sent, plan, returns_hits);
        self.effect = effect;
        if self.reserves {
            self.control_reservation();
        }
        self.is_quota &= !self.is_blocked();
        is_spared
    }

    pub fn reserve_stats(&self) -> Option<&'s ReserveStats> {
        self.applies.rule()?.reserve_stats.as_deref()
    }

    /// The entries that are counted, and the id of a reservation, if there is one.
    #[cold]
    pub fn split_id(&self) -> (&[Entry<'r>], Option<&'r str>) {
        let entries = self.entries();
        let Some(rule) = self.applies.rule() else { return (entries, None) };
        let counted = rule.counted_entries(entries.len());
        let id = match self.descriptor.budget {
            Some(budget) => Some(budget.id),
            // As it was sent.
            None => self.descriptor.entries.get(counted).map(|(_, id)| *id),
        };
        (entries.get(..counted).unwrap_or(entries), id)
    }

    pub fn is_blocked(&self) -> bool {
        matches!(self.effect, Some(Effect::Block { .. }))
    }

    /// Whether only the shadow mode of its rule, or of some of its limits, admits what the store decided.
    #[inline]
    pub fn passes_by_shadow_mode(&self, decision: &Decision) -> bool {
        if decision.allowed && decision.would_deny == 0 {
            return false;
        }
        let is_rule_in_shadow_mode = || self.applies.rule().is_some_and(|rule| rule.shadow_mode);
        (decision.allowed || is_rule_in_shadow_mode()) && !self.is_allowed()
    }

    /// The path of the rule; empty if there is none.
    #[inline]
    pub fn path(&self) -> &str {
        self.applies.rule().map_or("", Rule::path)
    }

    /// The entries that are counted separately.
    pub fn entries(&self) -> &[Entry<'r>] {
        self.key_entries.as_deref().unwrap_or(self.descriptor.entries)
    }

    /// The entries of the key that a plan counts: without the id of a hold.
    #[inline]
    pub fn counted_entries(&self, plan: &Plan) -> &[Entry<'r>] {
        match self.entries() {
            [others @ .., _] if plan.hold_id().is_some() => others,
            _ if self.reserves => self.split_id().0,
            entries => entries,
        }
    }
}

impl Lookup<'_, '_> {
    /// Whether all descriptors are charged, or none.
    pub fn is_together(&self) -> bool {
        self.domain.is_some_and(|domain| domain.together)
    }
}

impl<'s: 'r, 'r> Lookup<'s, 'r> {
    #[inline]
    pub fn start(&mut self, domain: Option<&'s Domain>, descriptors: usize) {
        self.domain = domain;
        self.matched.reserve(descriptors);
    }

    /// Adds the descriptors of a request, in order; or returns the index of an invalid one, and why, for the client.
    #[inline]
    pub fn add_all(
        &mut self,
        request: &Request<'r>,
        rules: &RuleSet,
    ) -> Result<(), (usize, &'static str)> {
        for (i, descriptor) in request.descriptors.iter().enumerate() {
            // A limit that was sent is checked even if its domain has no rules.
            let sent_plan = match &descriptor.limit {
                Some(limit) => {
                    Some(limit.plan(rules.calendar_month.as_ref()).map_err(|why| (i, why))?)
                }
                None => None,
            };
            self.add(request, descriptor, sent_plan).map_err(|why| (i, why))?;
        }
        Ok(())
    }

    /// Adds a descriptor, with a limit that was sent for it.
    #[inline]
    fn add(
        &mut self,
        request: &Request<'_>,
        descriptor: &'r Descriptor<'r>,
        sent_plan: Option<Arc<Plan>>,
    ) -> Result<(), &'static str> {
        let applies = match (self.domain, sent_plan) {
            (None, _) => Match::Nothing,
            (Some(_), Some(plan)) => Match::Override(plan),
            (Some(domain), None) => {
                domain.find(descriptor.entries).map_or(Match::Nothing, Match::Rule)
            }
        };
        let reserves = descriptor.budget.is_some()
            || applies.rule().is_some_and(|rule| rule.reserve.is_some());
        self.matched.push(Matched {
            applies,
            descriptor,
            op: op(request, descriptor),
            reserves,
            is_quota: false,
            effect: None,
            key_entries: None,
        });
        match self.matched.last_mut().filter(|_| reserves) {
            Some(matched) => matched.reserve(request),
            None => Ok(()),
        }
    }

    /// Completes the look-up once all descriptors are matched.
    #[inline]
    pub fn complete(&mut self, options: &LimiterOptions, values: &'r mut KeyValues<'s>) {
        self.drop_replaced();
        let mut replaces_values = false;
        for matched in &mut self.matched {
            matched.is_quota = matched.applies.is_quota(options);
            replaces_values |= matched.applies.replaces_values();
        }
        if replaces_values {
            self.replace_values(values);
        }
    }

    /// Returns the first descriptor of a request about reservations whose key is that of an earlier one.
    #[inline]
    pub fn repeated_key(&self) -> Option<usize> {
        self.matched.first().filter(|first| first.descriptor.budget.is_some())?;
        self.find_repeated_key()
    }

    #[cold]
    fn find_repeated_key(&self) -> Option<usize> {
        let all = self.matched.iter();
        let keys = all.map(|one| Some((one.split_id().0, one.applies.plan()?.shape())));
        let keys: Vec<_> = keys.collect();
        (1..keys.len()).find(|&i| keys[i].is_some() && keys[..i].contains(&keys[i]))
    }

    /// Sets the entries of keys that have other values than the request.
    #[inline(never)]
    fn replace_values(&mut self, values: &'r mut KeyValues<'s>) {
        let Some(domain) = self.domain else { return };
        let all = self.matched.iter().map(|matched| match matched.applies.replaces_values() {
            true => domain.key_values(matched.descriptor.entries),
            false => Vec::new(),
        });
        let all: &[_] = values.insert(all.collect());
        for (matched, values) in zip(&mut self.matched, all).filter(|(_, new)| !new.is_empty()) {
            let mut entries: Box<[_]> = matched.descriptor.entries.into();
            for (i, value) in values {
                if let Some(entry) = entries.get_mut(*i) {
                    entry.1 = value;
                }
            }
            matched.key_entries = Some(entries);
        }
    }

    /// Applies the controls of its domain, once the look-up is complete. Returns how many descriptors a block spares.
    #[inline(never)]
    pub fn control(
        &mut self,
        request: &Request<'_>,
        controls: &'s CompiledControls,
        options: &LimiterOptions,
    ) -> u64 {
        let mut spared = 0;
        for matched in &mut self.matched {
            spared += u64::from(matched.control(request, controls));
        }
        // In the global shadow mode a block denies nothing.
        let is_blocked = || self.matched.iter().any(Matched::is_blocked);
        self.is_blocked = !options.shadow_mode && is_blocked();
        if self.is_blocked && self.is_together() {
            // Charged all or none: the others only look.
            for matched in &mut self.matched {
                if !matched.is_blocked() && !matched.op.is_unconditional() {
                    matched.only_look();
                }
            }
        }
        spared
    }

    /// Drops every rule whose name any matched rule of the request replaces, itself replaced or
    /// not. A rule that is unlimited stays, as in the reference.
    fn drop_replaced(&mut self) {
        let mut rules = self.matched.iter().filter_map(|matched| matched.applies.rule());
        if rules.all(|rule| rule.replaces.is_empty()) {
            return;
        }
        let rules = self.matched.iter().filter_map(|matched| matched.applies.rule());
        let replaced: Vec<&str> =
            rules.flat_map(|rule| rule.replaces.iter().map(AsRef::as_ref)).collect();
        for Matched { applies, reserves, descriptor, .. } in &mut self.matched {
            if applies.rule().is_some_and(|rule| rule.plan.is_some() && rule.is_named_by(&replaced))
            {
                *applies = Match::Nothing;
                *reserves = descriptor.budget.is_some();
            }
        }
    }
}

/// The operation that a descriptor requests. Hits saturate at 2^32 - 1; a descriptor's own 0 only looks.
fn op(request: &Request<'_>, descriptor: &Descriptor<'_>) -> Op {
    let hits = descriptor.hits_addend.unwrap_or(u64::from(request.hits_addend.max(1)));
    let hits = hits.min(u64::from(u32::MAX));
    if descriptor.is_negative_hits { Op::Refund(hits) } else { Op::Take(hits) }
}
