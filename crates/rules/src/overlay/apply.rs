//! Changes the keys of a rule as a patch says.

use std::slice;

use super::patch::{KeyNodes, LimitMaps, Patch, changed};
use crate::syntax::position::{Origin, Position};
use crate::syntax::problem::Problem;
use crate::syntax::tree::{Node, Style, Value};

/// The keys of a descriptor, and separately those of its limits.
#[derive(Clone, Debug)]
pub(crate) struct PatchedKeys<'n> {
    pub rule: KeyNodes<'n>,
    pub limits: Option<LimitMaps<'n>>,
}

impl<'n> PatchedKeys<'n> {
    /// A copy whose nodes are all at the position.
    pub fn moved(&self, position: Position) -> PatchedKeys<'n> {
        PatchedKeys {
            rule: changed(&self.rule, |node| node.moved(position)),
            limits: self.limits.as_ref().map(|limits| limits.changed(|node| node.moved(position))),
        }
    }

    /// Applies a patch. Its nodes and its problem are put at `place`, if there is one.
    ///
    /// # Errors
    /// The patch selects a limit that the rule does not have.
    pub fn apply(&mut self, patch: &Patch, place: Option<&Origin>) -> Result<(), Box<Problem>> {
        let position = place.map(|place| place.position);
        let set = |target: &mut KeyNodes<'n>, keys: &[(&'static str, Node<'static>)]| {
            keys.iter().for_each(|(key, node)| set(target, key, node, position));
        };
        set(&mut self.rule, &patch.rule_keys);
        if let Some(limits) = &patch.limits {
            self.limits = limits.as_ref().map(|limits| match position {
                Some(position) => limits.changed(|node| node.moved(position)),
                None => limits.clone(),
            });
        }
        if patch.limit_keys.is_empty() {
            return Ok(());
        }
        let keys = &patch.limit_keys;
        let limits = match &mut self.limits {
            None => return Err(no_limit(patch, place, 0)),
            Some(LimitMaps::One(limit)) if selects(patch, limit) => {
                // The mode of an only limit is that of its rule.
                for key in keys {
                    let of_rule = key.0 == "shadow_mode";
                    set(if of_rule { &mut self.rule } else { limit }, slice::from_ref(key));
                }
                return Ok(());
            }
            Some(LimitMaps::One(limit)) => slice::from_mut(limit),
            Some(LimitMaps::Several(limits)) => limits,
        };
        let mut selected = 0;
        for limit in limits.iter_mut() {
            if selects(patch, limit) {
                set(limit, keys);
                selected += 1;
            }
        }
        if selected == 0 { Err(no_limit(patch, place, limits.len())) } else { Ok(()) }
    }

    /// The fields of the descriptor.
    pub fn into_fields(self, position: Position) -> KeyNodes<'n> {
        let map = |keys: KeyNodes<'n>| {
            let key = |key: &'static str| Node::scalar(position, key, Style::Text);
            let entries = keys.into_iter().map(|(name, node)| (key(name), node));
            Node::map(position, entries.collect())
        };
        let mut fields = self.rule;
        match self.limits {
            None => {}
            Some(LimitMaps::One(keys)) => fields.push(("rate_limit", map(keys))),
            Some(LimitMaps::Several(items)) => {
                let items = items.into_iter().map(map).collect();
                fields.push(("rate_limits", Node::list(position, items)));
            }
        }
        fields
    }
}

/// Sets a key, at `position` if there is one; null removes it.
fn set<'n>(
    target: &mut KeyNodes<'n>,
    key: &'static str,
    node: &Node<'static>,
    position: Option<Position>,
) {
    if node.value() == Some(Value::Null) {
        return target.retain(|(known, _)| *known != key);
    }
    let node: Node<'n> = position.map_or_else(|| node.clone(), |position| node.moved(position));
    match target.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) => *known = node,
        None => target.push((key, node)),
    }
}

/// Whether a patch selects this limit.
fn selects(patch: &Patch, limit: &KeyNodes<'_>) -> bool {
    let name = limit.iter().find(|(key, _)| *key == "name").and_then(|(_, node)| node.text());
    patch.limit.as_ref().is_none_or(|(wanted, _)| name == Some(wanted))
}

/// The error of a patch that selects none of the limits of a rule.
fn no_limit(patch: &Patch, place: Option<&Origin>, limits: usize) -> Box<Problem> {
    let what = match &patch.limit {
        None => String::new(),
        Some((name, _)) => format!(" named '{name}'"),
    };
    let has = match limits {
        0 => "none".to_owned(),
        1 => "one limit".to_owned(),
        _ => format!("{limits} limits"),
    };
    let origin = place.unwrap_or(&patch.origin);
    let selector = patch.limit.as_ref().filter(|_| place.is_none());
    let message = format!("there is no limit{what}, the rule has {has}");
    let help = "write the name of one of its limits, or a `match` without this rule";
    let position = selector.map_or(origin.position, |(_, position)| *position);
    Box::new(Problem::of_file(&origin.file, message, help).at(position))
}
