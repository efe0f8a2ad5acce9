//! A patch of an overlay file: the rules that it matches, the keys that it sets, and how it changes a rule's keys.

use std::slice;
use std::sync::Arc;

use crate::syntax::position::{Origin, Position};
use crate::syntax::problem::Problem;
use crate::syntax::tree::{Node, Style, Value};
use weir_common::failure::OnStoreFailure;
use weir_common::glob::Glob;

pub(crate) const MAX_PATCHES: usize = 10_000;

pub(crate) const MAX_ENTRIES: usize = 100;

/// What an item of `match.entries` matches.
#[derive(Debug)]
pub(crate) enum EntryPattern {
    /// Any number of entries.
    Any,
    Entry {
        key: Glob,
        value: Option<Glob>,
    },
}

impl EntryPattern {
    /// Makes a pattern of one entry of a text such as `key=value,key2`. `**` stands for any number of entries.
    pub fn of_text((key, value): (String, Option<String>)) -> EntryPattern {
        match (key.as_str(), value) {
            ("**", None) => EntryPattern::Any,
            (key, value) => EntryPattern::Entry {
                key: Glob::new(key),
                value: value.map(|value| Glob::new(&value)),
            },
        }
    }

    fn matches(&self, key: &str, value: &str) -> bool {
        match self {
            EntryPattern::Any => false,
            EntryPattern::Entry { key: wanted, value: pattern } => {
                wanted.matches(key) && pattern.as_ref().is_none_or(|pattern| pattern.matches(value))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Patch {
    pub origin: Origin,
    pub domain: Glob,
    /// What the path of a rule must match: at most [`MAX_ENTRIES`] steps.
    pub steps: Vec<EntryPattern>,
    /// The name of the limit that is patched, with its position; none for all limits.
    pub limit: Option<(Box<str>, Position)>,
    pub has_set: bool,
    /// Keys of descriptors to set; null removes one.
    pub rule_keys: KeyNodes<'static>,
    /// Keys of limits to set; null removes one.
    pub limit_keys: KeyNodes<'static>,
    /// The algorithm of limits that have none, if the patch sets a rate with a burst.
    pub default_algorithm: Option<(&'static str, Node<'static>)>,
    /// What replaces all limits, if anything does; none removes them.
    pub limits: Option<Option<LimitMaps<'static>>>,
    /// The `charge` of the domain, if the patch sets it: whether descriptors are charged together.
    pub charge: Option<bool>,
    /// The failure policy of the domain, if the patch sets it; none if the settings decide.
    pub on_store_failure: Option<Option<OnStoreFailure>>,
}

impl Patch {
    /// A patch that matches all rules and sets nothing.
    pub fn new(origin: Origin) -> Patch {
        Patch {
            origin,
            domain: Glob::new("*"),
            steps: vec![EntryPattern::Any],
            limit: None,
            has_set: false,
            rule_keys: Vec::new(),
            limit_keys: Vec::new(),
            default_algorithm: None,
            limits: None,
            charge: None,
            on_store_failure: None,
        }
    }

    pub fn matches(&self, path: &[(Arc<str>, Arc<str>)]) -> bool {
        let (mut step, mut entry) = (0, 0);
        // The last step that is any number of entries, and the first entry after those that it stands for.
        let mut any: Option<(usize, usize)> = None;
        while let Some((key, value)) = path.get(entry) {
            match self.steps.get(step) {
                Some(EntryPattern::Any) => any = Some((step, entry)),
                Some(one) if one.matches(key, value) => entry += 1,
                _ => {
                    let Some((at, after)) = &mut any else { return false };
                    *after += 1;
                    (step, entry) = (*at, *after);
                }
            }
            step += 1;
        }
        let rest = self.steps.get(step..).unwrap_or_default();
        rest.iter().all(|step| matches!(step, EntryPattern::Any))
    }

    /// Returns whether the patch sets this key of descriptors.
    pub fn sets(&self, name: &str) -> bool {
        self.rule_keys.iter().any(|(key, _)| *key == name)
    }

    /// Returns whether a rule is the same without `earlier`, if this is the next patch that fits the rule.
    pub fn overrides(&self, earlier: &Patch) -> bool {
        let limit = |patch: &Patch| patch.limit.as_ref().map(|(name, _)| name.clone());
        let sets = |(key, old): &(&str, Node<'_>)| {
            // A null does not restore the `period` that a `unit` has replaced.
            let is_set = |new: &Node<'_>| old.is_null() || !new.is_null();
            self.limit_keys.iter().any(|(name, new)| name == key && is_set(new))
        };
        let sets_domain = earlier.charge.is_some() || earlier.on_store_failure.is_some();
        !sets_domain
            && earlier.rule_keys.iter().all(|(key, _)| self.sets(key))
            && earlier.limit_keys.iter().all(sets)
            && (earlier.limits.is_none() || self.limits.is_some())
            && (earlier.default_algorithm.is_none() || self.default_algorithm.is_some())
            && (self.limit.is_none() || limit(self) == limit(earlier))
    }
}

pub(crate) type KeyNodes<'n> = Vec<(&'static str, Node<'n>)>;

pub(crate) fn changed<'n, 'm>(
    keys: &KeyNodes<'n>,
    change: impl Fn(&Node<'n>) -> Node<'m>,
) -> KeyNodes<'m> {
    keys.iter().map(|(key, node)| (*key, change(node))).collect()
}

#[derive(Clone, Debug)]
pub(crate) enum LimitMaps<'n> {
    /// The nodes of `rate_limit`.
    One(KeyNodes<'n>),
    /// The nodes of each item of `rate_limits`.
    Several(Vec<KeyNodes<'n>>),
}

impl<'n> LimitMaps<'n> {
    pub fn changed<'m>(&self, change: impl Fn(&Node<'n>) -> Node<'m>) -> LimitMaps<'m> {
        match self {
            LimitMaps::One(keys) => LimitMaps::One(changed(keys, change)),
            LimitMaps::Several(items) => {
                LimitMaps::Several(items.iter().map(|keys| changed(keys, &change)).collect())
            }
        }
    }
}

/// The keys of a descriptor, and separately those of its limits.
#[derive(Clone, Debug)]
pub(crate) struct PatchedKeys<'n> {
    pub rule: KeyNodes<'n>,
    pub limits: Option<LimitMaps<'n>>,
}

impl<'n> PatchedKeys<'n> {
    pub fn moved(&self, position: Position) -> PatchedKeys<'n> {
        PatchedKeys {
            rule: changed(&self.rule, |node| node.moved(position)),
            limits: self.limits.as_ref().map(|limits| limits.changed(|node| node.moved(position))),
        }
    }

    /// Applies a patch. Fails if it selects a limit that the rule does not have.
    pub fn apply(&mut self, patch: &Patch) -> Result<(), Box<Problem>> {
        let set = |target: &mut KeyNodes<'n>, keys: &[(&'static str, Node<'static>)]| {
            keys.iter().for_each(|(key, node)| set(target, key, node));
        };
        set(&mut self.rule, &patch.rule_keys);
        if let Some(limits) = &patch.limits {
            self.limits.clone_from(limits);
        }
        if patch.limit_keys.is_empty() {
            return Ok(());
        }
        let keys = &patch.limit_keys;
        let sets = |name| keys.iter().any(|(key, node)| *key == name && !node.is_null());
        let (has_unit, has_period) = (sets("unit") || sets("unit_multiplier"), sets("period"));
        // The other form of the period, which `rate` may stand for, too.
        let is_replaced = |key: &str| match key {
            "period" => has_unit,
            "unit" | "unit_multiplier" => has_period,
            _ => false,
        };
        let set_default = |limit: &mut KeyNodes<'n>| {
            let default = patch.default_algorithm.iter();
            let is_unset = limit.iter().all(|(key, _)| *key != "algorithm");
            default.filter(|_| is_unset).for_each(|key| set(limit, slice::from_ref(key)));
        };
        let limits = match &mut self.limits {
            None => return Err(no_limit(patch, 0)),
            Some(LimitMaps::One(limit)) if selects(patch, limit) => {
                limit.retain(|(key, _)| !is_replaced(key));
                // The mode of an only limit is that of its rule.
                for key in keys {
                    let of_rule = key.0 == "shadow_mode";
                    set(if of_rule { &mut self.rule } else { limit }, slice::from_ref(key));
                }
                set_default(limit);
                return Ok(());
            }
            Some(LimitMaps::One(limit)) => slice::from_mut(limit),
            Some(LimitMaps::Several(limits)) => limits,
        };
        let mut selected = 0;
        for limit in limits.iter_mut() {
            if selects(patch, limit) {
                limit.retain(|(key, _)| !is_replaced(key));
                set(limit, keys);
                set_default(limit);
                selected += 1;
            }
        }
        if selected == 0 { Err(no_limit(patch, limits.len())) } else { Ok(()) }
    }

    pub fn into_fields(self, position: Position) -> KeyNodes<'n> {
        let mut fields = self.rule;
        match self.limits {
            None => {}
            Some(LimitMaps::One(keys)) => fields.push(("rate_limit", map(position, keys))),
            Some(LimitMaps::Several(items)) => {
                let items = items.into_iter().map(|keys| map(position, keys)).collect();
                fields.push(("rate_limits", Node::list(position, items)));
            }
        }
        fields
    }
}

/// Returns a map of keys that are all at one position.
pub(crate) fn map<'n>(position: Position, keys: KeyNodes<'n>) -> Node<'n> {
    let key = |key| Node::scalar(position, key, Style::Text);
    Node::map(position, keys.into_iter().map(|(name, node)| (key(name), node)).collect())
}

/// Sets a key; null removes it.
fn set<'n>(target: &mut KeyNodes<'n>, key: &'static str, node: &Node<'static>) {
    if node.value() == Some(Value::Null) {
        return target.retain(|(known, _)| *known != key);
    }
    match target.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) => *known = node.clone(),
        None => target.push((key, node.clone())),
    }
}

fn selects(patch: &Patch, limit: &KeyNodes<'_>) -> bool {
    let name = limit.iter().find(|(key, _)| *key == "name").and_then(|(_, node)| node.text());
    patch.limit.as_ref().is_none_or(|(wanted, _)| name == Some(wanted))
}

fn no_limit(patch: &Patch, limits: usize) -> Box<Problem> {
    let selector = patch.limit.as_ref();
    let what = selector.map_or(String::new(), |(name, _)| format!(" named '{name}'"));
    let has = match limits {
        0 => "none".to_owned(),
        1 => "one limit".to_owned(),
        _ => format!("{limits} limits"),
    };
    let message = format!("there is no limit{what}, the rule has {has}");
    let help = "write the name of one of its limits, or a `match` without this rule";
    let position = selector.map_or(patch.origin.position, |(_, position)| *position);
    Box::new(Problem::of_file(&patch.origin.file, message, help).at(position))
}
