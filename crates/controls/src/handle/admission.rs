//! Checks and puts a control (an operator's block, allow or limit): what it would do, whether there is room for it, and
//! what is probably misspelled: a domain or a key that no rule has, or a value that is nearly a network.

use std::sync::Arc;

use super::{Controls, PutOptions, Written, in_background};
use crate::changes::match_of;
use crate::compiled::{RuleMatches, match_rules};
use crate::control::{Action, Control, Draft, MAX_COMPARED};
use crate::error::{ControlError, ErrorKind, PlanError};
use crate::index::specificity;
use crate::limits::LimitControls;
use crate::plans::RulesByKey;
use crate::request::{Expiry, check_id};
use crate::set::ControlSet;
use weir_common::network::{Network, NetworkError};
use weir_common::suggest::Suggester;
use weir_limit::Micros;
use weir_rules::RuleSet;

impl Controls {
    /// Puts a control, in place of one of its id. Without an id it gets one of its action and of what it matches.
    pub async fn put(
        &self,
        id: Option<&str>,
        draft: Draft,
        options: PutOptions,
    ) -> Result<Written, ControlError> {
        let expiry = draft.check()?;
        let id = id.map_or_else(|| draft.default_id(), str::to_owned);
        check_id(&id)?;
        let rules = self.active.rules_by_key();
        let now = self.now();
        let (mut control, matches) = with_end(draft.into_control(id, now), expiry, &rules);
        let effects = check(&control, &matches, now, options.force)?;
        let mut warnings = names_unknown_to(rules.rules.clone(), &control).await;
        warnings.extend(not_networks(&control));
        warnings.extend(effects);
        self.drop_expired().await;
        let putting = self.putting.lock().await;
        let others = self.set.lock().count_but(&control.id);
        self.check_room(&control, others).await?;
        {
            let mut set = self.set.lock();
            control.at = set.time_of(&control.id, now);
            let next = self.active.controls.lock();
            warnings.extend(effects_on_others(&set, &next.limits, &control));
            drop(next);
            if !options.dry_run {
                set.begin_change(&control.id);
                set.put(Arc::new(control.clone()), self.options.is_shared);
            }
        }
        if !options.dry_run {
            // The next one is checked beside this one.
            self.activate().await;
        }
        drop(putting);
        let (shared, kept) = match options.dry_run {
            true => {
                let shared = self.would_share();
                (shared, shared || self.options.file.is_some() && self.unkept().is_none())
            }
            false => self.share_and_keep(&control.id).await,
        };
        let not_kept_because = self.not_kept_because(kept);
        Ok(Written { control, shared, kept, not_kept_because, rules: matches.rules, warnings })
    }

    async fn check_room(&self, control: &Control, others: usize) -> Result<(), ControlError> {
        let max = self.options.max;
        if others >= max {
            let error = format!("there are {max} controls already");
            let help = "delete some, or match several clients with `*` or a network in a value";
            return Err(ControlError::new(ErrorKind::TooMany, error, help));
        }
        // Replicas that were cut off from each other may have too many together: then those that add
        // none to compare still have room.
        if self.active.controls.lock().compared_with(control) >= MAX_COMPARED {
            let error =
                format!("over {MAX_COMPARED} controls have no exact value, or only the same one");
            let help = "give one of the entries a value of its own without `*`";
            return Err(ControlError::new(ErrorKind::TooMany, error, help));
        }
        if !matches!(control.action, Action::Limit { .. }) {
            return Ok(());
        }
        let (active, control) = (self.active.clone(), Arc::new(control.clone()));
        // Nothing: it panicked.
        if in_background(others, move || active.has_room(control)).await.unwrap_or(false) {
            return Ok(());
        }
        let error = PlanError::TooManyPlans.to_string();
        let help = "delete some controls of the action `limit`, or name more entries";
        Err(ControlError::new(ErrorKind::TooMany, error, help))
    }
}

/// Gives a new control its end. Returns which rules it matches, too.
fn with_end(mut control: Control, expiry: Expiry, rules: &RulesByKey) -> (Control, RuleMatches) {
    let matches = match_rules(&control, rules);
    let at = control.at;
    let after = |time: Micros| Some(at.saturating_add(time));
    control.until = match expiry {
        Expiry::For(time) => after(Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)),
        Expiry::Until(until) => Some(until),
        Expiry::Default if control.action == Action::Block => after(matches.default_block),
        Expiry::Default | Expiry::Forever => None,
    };
    (control, matches)
}

/// The most other controls that warnings name.
const MAX_NAMED: usize = 3;

/// Returns the effects on other controls that the operator may not expect.
fn effects_on_others(set: &ControlSet, limits: &LimitControls, control: &Control) -> Vec<String> {
    let is_other = |old: &&Arc<Control>| {
        let is_same = old.action == control.action && old.except == control.except;
        !is_same || match_of(old) != match_of(control)
    };
    let replaced = set.get(&control.id).filter(is_other);
    let mut warnings = Vec::from_iter(
        replaced.map(|old| format!("it replaces {}: {} {}", old.id, old.action, old.match_text())),
    );
    let hidden: Vec<String> = match control.action {
        Action::Block => Vec::new(),
        Action::Allow { .. } => set.controls().filter_map(|old| blocking(old, control)).collect(),
        Action::Limit { .. } => {
            let others = limits.around_or_within(control).into_iter();
            let others = others.filter(|other| other.id != control.id);
            others.filter_map(|other| hidden(other, control)).collect()
        }
    };
    let more = hidden.len().saturating_sub(MAX_NAMED);
    warnings.extend(hidden.into_iter().take(MAX_NAMED));
    if more > 0 {
        warnings.push(format!("the same is true of {more} other controls"));
    }
    warnings
}

/// Returns why an allowance has no effect, if another control blocks all that it matches.
fn blocking(other: &Control, allowance: &Control) -> Option<String> {
    let is_spared = other.except.iter().any(|spared| allowance.entries.contains(spared));
    let blocks = other.action == Action::Block && allowance.is_within(other) && !is_spared;
    let help = "a block comes before an allowance; put the block again with --except";
    blocks.then(|| format!("{} ({}) still blocks it: {help}", other.id, other.match_text()))
}

/// Returns why one of two controls that change limits has no effect on some descriptors, although the
/// other changes another limit or says no more about them.
fn hidden(other: &Control, control: &Control) -> Option<String> {
    let (Action::Limit { limit: theirs }, Action::Limit { limit: mine }) =
        (&other.action, &control.action)
    else {
        return None;
    };
    let is_around = other.is_within(control);
    if !is_around && !control.is_within(other) || match_of(other) == match_of(control) {
        return None;
    }
    let (id, matches) = (&other.id, other.match_text());
    let (their_place, my_place) = (specificity(other), specificity(control));
    // Of two that say as much the newer one applies.
    if is_around && my_place == their_place {
        return Some(format!("{id} ({matches}) has no effect any more: this matches it too"));
    }
    (theirs.name != mine.name).then(|| {
        let applies = if my_place <= their_place { "this control" } else { id };
        format!("where {id} ({matches}) matches too, only {applies} changes limits")
    })
}

/// Checks what a control would do. Returns what the operator may not expect.
fn check(
    control: &Control,
    matches: &RuleMatches,
    now: Micros,
    force: bool,
) -> Result<Vec<String>, ControlError> {
    if control.is_expired(now) {
        let help = "write a time in the future, or a duration";
        return Err(ControlError::invalid("`until` has passed", help));
    }
    if control.matches_everything() && !force {
        let domains = if control.domain == "*" { "every domain" } else { "its domain" };
        let error = match control.entries.is_empty() {
            true => format!("the control matches everything of {domains}: it has no entries"),
            // A client may have chosen such a value, so that an operator blocks all others too.
            false => {
                let reason = match control.networks().next() {
                    Some(network) => format!("{network} is any address"),
                    None => "`*` is any text".to_owned(),
                };
                format!("the control matches every value of its keys in {domains}: {reason}")
            }
        };
        let help = "write other entries, or set the parameter `force=1`";
        return Err(ControlError::new(ErrorKind::NeedsForce, error, help));
    }
    let mut warnings = Vec::new();
    if let Action::Limit { .. } = control.action {
        match matches.unchanged.first() {
            Some((rule, error)) if matches.changed == 0 => {
                let names = match error {
                    PlanError::NameNeeded(names) => names.clone(),
                    _ => Vec::new(),
                };
                let error = format!("the limit does not fit the rule {rule}: {error}");
                let help = "write other numbers, the name of another limit, or other entries";
                return Err(ControlError { names, ..ControlError::invalid(error, help) });
            }
            None if matches.changed == 0 => {
                warnings.push("no rule with a limit matches: it has no effect now".to_owned());
            }
            _ => {}
        }
        let unchanged = matches.unchanged.iter().take(10);
        warnings.extend(unchanged.map(|(rule, error)| format!("{rule} stays as it is: {error}")));
    }
    Ok(warnings)
}

async fn names_unknown_to(rules: Arc<RuleSet>, control: &Control) -> Vec<String> {
    let (compared, control) = (rules.rules().count(), control.clone());
    let warnings = in_background(compared, move || unknown_names(&control, &rules)).await;
    // Nothing: it panicked.
    warnings.unwrap_or_default()
}

/// Returns a warning for each name that no rule has. None is an error: a control may match without a rule.
fn unknown_names(control: &Control, rules: &RuleSet) -> Vec<String> {
    let is_any_domain = control.domain == "*";
    if is_any_domain && control.entries.is_empty() && control.except.is_empty() {
        return Vec::new();
    }
    if rules.domains() == 0 {
        return vec!["no rules are loaded: the domain and the keys are not checked".to_owned()];
    }
    let mut suggester = Suggester::default();
    let domain = rules.domain(&control.domain).filter(|_| !is_any_domain);
    if domain.is_none() && !is_any_domain {
        let near = rules.nearest_domain(&control.domain, &mut suggester);
        return vec![unknown("domain", &control.domain, near, "no rule has it")];
    }
    let all = || control.entries.iter().chain(&control.except);
    let keys = all().enumerate().filter(|(at, entry)| {
        let is_new = all().take(*at).all(|earlier| earlier.key != entry.key);
        is_new && !rules.has_key(domain, &entry.key)
    });
    let place = if is_any_domain { "no rule has it" } else { "no rule of the domain has it" };
    keys.map(|(_, entry)| {
        let near = rules.nearest_key(domain, &entry.key, &mut suggester);
        unknown("key", &entry.key, near, place)
    })
    .collect()
}

/// Returns a warning for each value that is written as a network and is none. It matches as a text.
fn not_networks(control: &Control) -> Vec<String> {
    let entries = control.entries.iter().chain(&control.except);
    let values = entries.map(|entry| &*entry.value).filter(|_| !control.text);
    let why = |value: &str| match Network::parse(value).err()? {
        NetworkError::Invalid(_) => None,
        NetworkError::PrefixTooLong { max, .. } => {
            Some(format!("its prefix is longer than {max} bits"))
        }
        NetworkError::HostBits { meant, .. } => {
            Some(format!("it has bits set after its prefix: did you mean '{meant}'?"))
        }
    };
    let warning = |value: &str| {
        Some(format!("'{value}' is not a network and matches this text alone: {}", why(value)?))
    };
    values.filter_map(warning).collect()
}

fn unknown(what: &str, name: &str, near: Option<&str>, place: &str) -> String {
    match near {
        Some(near) => format!("unknown {what} '{name}': did you mean '{near}'?"),
        None => format!("unknown {what} '{name}': {place}"),
    }
}
