//! Compares two compiled rule sets: which rules were added, removed or changed. `weir diff` prints the result, and the
//! service logs it after each load.
//!
//! The descriptor trees of both are walked together, in linear time. Two descriptors are the same if they have the same
//! text: `key`, or `key_value` if the rule file gives a value.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::describe::parameter_json;
use crate::matcher::{Child, Domain, MatcherNode, RuleSet};
use crate::model::key::Key;
use crate::model::keys::limits::parameters;
use crate::model::rule::Rule;
use crate::model::value_set::{Group, ValueSet};
use weir_limit::Limit;

/// What differs between two sets of rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Difference<'s> {
    /// The rules that only the new set has.
    pub added: Vec<ListedRule<'s>>,
    /// The rules that only the old set has.
    pub removed: Vec<ListedRule<'s>>,
    /// What differs in rules that both have.
    pub changed: Vec<Change<'s>>,
}

/// A rule that only one of the sets has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedRule<'s> {
    /// The domain of the rule.
    pub domain: &'s str,
    /// The path of the rule, such as `plan_gold.user`, or of a descriptor without limits; none for an empty domain.
    pub rule: Option<String>,
    /// The limits in words; none for a descriptor without limits.
    pub limits: Option<String>,
}

/// A member of a rule, a descriptor or a domain that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change<'s> {
    /// The domain of the rule.
    pub domain: &'s str,
    /// The path of the rule or the descriptor; none if the member is one of the domain.
    pub rule: Option<String>,
    /// The key of rule files; `limits` for the limits in words, `limits[0].KEY` for what these do not contain;
    /// `matches by` for the key that names values, if the name of the descriptor is the same; `wildcards` for
    /// the order of the wildcards that both sets have on one level.
    pub member: String,
    /// The member in the old set.
    pub old: Value,
    /// The member in the new set.
    pub new: Value,
}

/// Compares two sets, domain by domain in the order of their names.
pub fn compare<'s>(old: &'s RuleSet, new: &'s RuleSet) -> Difference<'s> {
    let names = old.domains.keys().chain(new.domains.keys());
    let names: BTreeSet<&str> = names.map(|name| &**name).collect();
    let mut difference = Difference::default();
    for name in names {
        let mut walk = Walk { domain: name, path: String::new(), difference: &mut difference };
        match (old.domain(name), new.domain(name)) {
            (Some(old), Some(new)) => walk.domains(old, new),
            (Some(old), None) => walk.whole(&old.root, Side::Old),
            (None, Some(new)) => walk.whole(&new.root, Side::New),
            (None, None) => {}
        }
    }
    difference
}

impl Difference<'_> {
    /// Returns whether the sets are equal, wherever their rules were read.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// `shop.user`; `shop` for a domain.
fn write_name(f: &mut fmt::Formatter<'_>, domain: &str, rule: Option<&str>) -> fmt::Result {
    f.write_str(domain)?;
    rule.map_or(Ok(()), |rule| write!(f, ".{rule}"))
}

impl fmt::Display for ListedRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, self.domain, self.rule.as_deref())
    }
}

/// `shop.user: 60 per minute → 90 per minute`; `shop.user: shadow_mode: false → true`.
impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, self.domain, self.rule.as_deref())?;
        if self.member != "limits" {
            write!(f, ": {}", self.member)?;
        }
        for (mark, value) in [(": ", &self.old), (" → ", &self.new)] {
            match value {
                Value::Null => write!(f, "{mark}none")?,
                Value::String(text) => write!(f, "{mark}{text}")?,
                other => write!(f, "{mark}{other}")?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Side {
    Old,
    New,
}

struct Walk<'s, 'd> {
    domain: &'s str,
    /// The path of the descriptor; empty at the root.
    path: String,
    difference: &'d mut Difference<'s>,
}

impl<'s> Walk<'s, '_> {
    fn below(&mut self, child: &Child, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(&child.text);
        visit(self);
        self.path.truncate(length);
    }

    fn path(&self) -> Option<String> {
        (!self.path.is_empty()).then(|| self.path.clone())
    }

    fn list(&mut self, rule: Option<&Rule>, side: Side) {
        let limits = rule.map(Rule::limits_text);
        let listed = ListedRule { domain: self.domain, rule: self.path(), limits };
        match side {
            Side::Old => self.difference.removed.push(listed),
            Side::New => self.difference.added.push(listed),
        }
    }

    fn change<T: PartialEq + Into<Value>>(&mut self, member: &str, old: T, new: T) {
        if old != new {
            let (domain, rule, member) = (self.domain, self.path(), member.to_owned());
            let (old, new) = (old.into(), new.into());
            self.difference.changed.push(Change { domain, rule, member, old, new });
        }
    }

    fn domains(&mut self, old: &Domain, new: &Domain) {
        self.change("charge", old.charge(), new.charge());
        let policy = |domain: &Domain| domain.on_store_failure.map(|policy| policy.name());
        self.change("on_store_failure", policy(old), policy(new));
        self.nodes(&old.root, &new.root);
    }

    /// Lists a domain that only one set has: its rules, or itself if there are none.
    fn whole(&mut self, root: &MatcherNode, side: Side) {
        if root.children().is_empty() {
            self.list(None, side);
        }
        root.children().iter().for_each(|child| self.only(child, side));
    }

    /// Lists the rules of a descriptor that only one set has. One without limits is listed if nothing is below it:
    /// requests that match it match no rule.
    fn only(&mut self, child: &Child, side: Side) {
        self.below(child, |walk| {
            let rule = child.rule.as_deref();
            if rule.is_some() || child.below.children().is_empty() {
                walk.list(rule, side);
            }
            child.below.children().iter().for_each(|child| walk.only(child, side));
        });
    }

    fn nodes(&mut self, old: &MatcherNode, new: &MatcherNode) {
        for child in old.children() {
            match new.named(&child.text) {
                Some(newer) => self.below(child, |walk| walk.pair(child, newer)),
                None => self.only(child, Side::Old),
            }
        }
        for child in new.children().iter().filter(|child| old.named(&child.text).is_none()) {
            self.only(child, Side::New);
        }
        if old.wildcards() > 1 && new.wildcards() > 1 {
            let shared = |node: &MatcherNode, other: &MatcherNode| -> Vec<Value> {
                let texts = node.wildcard_texts().filter(|text| other.named(text).is_some());
                let mut texts: Vec<&str> = texts.collect();
                // Several wildcards of one descriptor are beside each other.
                texts.dedup();
                texts.into_iter().map(Value::from).collect()
            };
            self.change("wildcards", shared(old, new), shared(new, old));
        }
    }

    fn pair(&mut self, old: &Child, new: &Child) {
        self.change("key", old.entry().0, new.entry().0);
        self.change("share_threshold", old.flags.share_threshold, new.flags.share_threshold);
        self.change("value_to_metric", old.flags.value_to_metric, new.flags.value_to_metric);
        self.sets(old.set.as_deref(), new.set.as_deref());
        match (old.rule.as_deref(), new.rule.as_deref()) {
            (Some(old), Some(new)) => self.rules(old, new),
            (Some(old), None) => self.list(Some(old), Side::Old),
            (None, Some(new)) => self.list(Some(new), Side::New),
            (None, None) => {}
        }
        self.nodes(&old.below, &new.below);
    }

    fn sets(&mut self, old: Option<&ValueSet>, new: Option<&ValueSet>) {
        if old.is_some() || new.is_some() {
            let key = |set: Option<&ValueSet>| set.map_or("value", ValueSet::key);
            self.change("matches by", key(old), key(new));
            let group = |set: Option<&ValueSet>| {
                let Group { v4, v6 } = set.map(|set| set.group).unwrap_or_default();
                json!({ "v4": v4, "v6": v6 })
            };
            self.change("group", group(old), group(new));
            if let (Some(old), Some(new)) = (old, new)
                && let (Some(before), Some(after)) = (old.len(), new.len())
                && old.key() == new.key()
                && !old.is_same(new)
            {
                let other = if before == after { "other " } else { "" };
                let [from, to] = [format!("{before} values"), format!("{after} {other}values")];
                self.change(new.key(), from, to);
            }
        }
    }

    fn rules(&mut self, old: &Rule, new: &Rule) {
        if old.plan != new.plan {
            self.change("limits", old.limits_text(), new.limits_text());
            let (old, new) = (old.limits(), new.limits());
            if old.len() == new.len() {
                for (i, (old, limit)) in old.iter().zip(new).enumerate() {
                    self.limit(i, old, limit, new.len() == 1);
                }
            }
        }
        // With several limits, each has its own.
        if old.limits().len().max(new.limits().len()) <= 1 {
            let name =
                |rule: &Rule| Some(rule.limit_name.to_string()).filter(|name| !name.is_empty());
            self.change("name", name(old), name(new));
        }
        self.change("shadow_mode", old.shadow_mode, new.shadow_mode);
        self.change("quota_mode", old.quota_mode, new.quota_mode);
        self.change("detailed_metric", old.detailed_metric, new.detailed_metric);
        self.change("lease", old.lease, new.lease);
        let reserve = |rule: &Rule| rule.reserve.as_ref().map(ToString::to_string);
        self.change("reserve", reserve(old), reserve(new));
        let names = |rule: &Rule| -> Vec<Value> {
            rule.replaces.iter().map(|name| Value::from(&**name)).collect()
        };
        self.change("replaces", names(old), names(new));
        if old.metadata != new.metadata {
            let value = |rule: &Rule| rule.metadata.clone().map_or(Value::Null, Value::Object);
            self.change("metadata", value(old), value(new));
        }
    }

    /// Compares what the text of a limit does not contain. Parameters of another algorithm are not compared.
    fn limit(&mut self, number: usize, old: &Limit, new: &Limit, is_one: bool) {
        let newer = details(new);
        for (key, value) in details(old) {
            // The name of a single limit is that of its rule.
            let Some(new) = newer.get(&key).filter(|_| key != "name" || !is_one) else { continue };
            self.change(&format!("limits[{number}].{key}"), value, new.clone());
        }
    }
}

fn details(limit: &Limit) -> Map<String, Value> {
    let in_text = |key: &str| Key::find(key).is_some_and(|key| key.in_text);
    let parameters = parameters(limit).into_iter().filter(|parameter| !in_text(parameter.key));
    let mut details: Map<String, Value> = parameters.map(parameter_json).collect();
    details.insert("name".to_owned(), (*limit.name).into());
    details.insert("charge_denied".to_owned(), limit.charge_denied.into());
    details
}
