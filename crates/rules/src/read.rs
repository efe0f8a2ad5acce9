//! Reads the descriptors of a rule file or xDS resource when rules are compiled: checks all keys, reports all problems,
//! and adds the rules to the matcher (`Tree`) of their domain.

mod ban;
mod descriptor;
mod limits;
mod lint;
mod overlay;
mod patched;
mod rate;
pub(crate) mod reader;
mod reserve;
pub(crate) mod root;
mod rule_memory;
mod siblings;
mod value_sets;
mod values;

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::matcher::{MatcherNode as Tree, NodeFlags};
use crate::model::key::Section;
use crate::model::rule::Rule;
use crate::model::stats::{LimitStats, RuleSeries};
use crate::model::value_set::ValueSet;
use crate::syntax::position::Origin;
use crate::syntax::tree::Node;
use descriptor::{Above, Below, Descriptor, DescriptorNode, limit_nodes};
use limits::algorithm::OfRule;
use reader::Reader;
use value_sets::{NamedSet, set_node};
use weir_limit::Plan;

impl Reader<'_> {
    /// Reads the keys of one descriptor, without the descriptors below it.
    fn keys(&mut self, node: &DescriptorNode<'_>) -> Descriptor {
        let DescriptorNode { position, ref fields, .. } = *node;
        let mut read = Descriptor { key_position: position, lease: true, ..Descriptor::default() };
        let (mut share_node, mut reserve_node) = (None, None);
        let (mut ban_node, mut lease_node) = (None, None);
        let set = set_node(fields);
        let mut value_position = position;
        for &(field, child) in fields {
            match field {
                "key" => {
                    (read.key, read.key_position) = (self.written(child, field), child.position);
                }
                "value" => {
                    (read.value, value_position) = (self.written(child, field), child.position);
                }
                "shadow_mode" => read.shadow_mode = self.bool(child, field),
                "quota_mode" => read.quota_mode = self.bool(child, field),
                "detailed_metric" => read.detailed_metric = self.bool(child, field),
                "value_to_metric" => read.value_to_metric = self.bool(child, field),
                "share_threshold" => {
                    (read.share_threshold, share_node) = (self.bool(child, field), Some(child));
                }
                "group" if !child.is_null() => {
                    read.group = self.group(child);
                    if set.is_none() {
                        let message =
                            "config error, `group` without `network`, `values` or `values_file`";
                        let help = "to count all addresses by prefix, write `network: [0.0.0.0/0, \
                                    \"::/0\"]`";
                        self.error(child.position, message, "", help);
                    }
                }
                "metadata" => read.metadata = self.metadata(child),
                "reserve" => reserve_node = Some(child).filter(|node| !node.is_null()),
                "ban" => ban_node = Some(child).filter(|node| !node.is_null()),
                "lease" => lease_node = Some(child).filter(|node| !node.is_null()),
                _ => {}
            }
        }
        if read.key.is_empty() {
            let help = "write `key: NAME`, the key of the descriptor's entry";
            self.error(read.key_position, "descriptor has empty key", "", help);
        }
        self.lint_value(&read.key, &read.value, value_position);
        let (rate_limit, rate_limits) = limit_nodes(fields);
        let (reserves, bans) = (reserve_node.is_some(), ban_node.is_some());
        let rule = OfRule { key: &read.key, reserves, bans };
        read.rate_limit = self.rate_limit(&rate_limit, rate_limits, rule);
        let limits = read.rate_limit.as_ref();
        read.reserve =
            reserve_node.and_then(|reserve| self.reserve(reserve, node, &read.key, limits));
        read.ban = ban_node.and_then(|ban| self.ban(ban, read.quota_mode, limits));
        read.lease = lease_node.is_none_or(|lease| self.lease(lease, rule, limits));
        let text = read.text();
        let is_alone = set.is_none() && !text.contains('*');
        if let Some(node) = share_node.filter(|_| read.share_threshold && is_alone) {
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), \
                 but found key '{text}'"
            );
            let help =
                "put a `*` into `value`, write `values` or `network`, or remove share_threshold";
            self.error(node.position, message, &node.shown(), help);
        }
        read
    }

    /// Reads a descriptor, with the fields that it lacks of the siblings that are merged with it.
    fn descriptor<'n>(
        &mut self,
        node: &'n Node<'n>,
        siblings: &[&'n Node<'n>],
        above: &Above<'_>,
        tree: &mut Tree,
    ) {
        if self.memory.is_spent() {
            return;
        }
        let mut fields = self.fields(node, Section::Descriptor);
        for sibling in siblings {
            for field in self.fields(sibling, Section::Descriptor) {
                if field.0 == "descriptors" || fields.iter().all(|(known, _)| *known != field.0) {
                    fields.push(field);
                }
            }
        }
        let limit = self.limit_of_rate(node, &mut fields);
        fields.extend(limit.as_ref().map(|(key, limit)| (*key, limit)));
        let mut nodes = Vec::new();
        for (field, child) in fields.iter().filter(|(field, _)| *field == "descriptors") {
            // Of a repeated key the last counts; merged siblings have each its own.
            if siblings.is_empty() {
                nodes.clear();
            }
            nodes.append(&mut self.maps(child, field));
        }
        let below = Rc::new(Below { nodes, keys: OnceCell::new() });
        let node = DescriptorNode { position: node.position, fields, below, cuts_reserve: false };
        let read = self.keys(&node);
        match self.value_sets(&node.fields, &read, tree) {
            None => self.add(&node, read, above, tree),
            // After an error, what is below is read for its problems.
            Some(sets) if sets.is_empty() => self.add(&node, read, above, &mut Tree::default()),
            Some(sets) => {
                let (lint, mut first) = (self.lint, Some(read));
                for NamedSet { value, kind, position } in sets {
                    let read = first.take().unwrap_or_else(|| self.keys(&node));
                    let set = Some(kind);
                    let read = Descriptor { value, key_position: position, set, ..read };
                    self.add(&node, read, above, tree);
                    // The warnings about the others would be the same.
                    self.lint = false;
                }
                self.lint = lint;
            }
        }
    }

    /// Adds a descriptor, and those below it.
    fn add(
        &mut self,
        node: &DescriptorNode<'_>,
        mut read: Descriptor,
        above: &Above<'_>,
        tree: &mut Tree,
    ) {
        if self.memory.is_spent() {
            return;
        }
        let text = read.text();
        self.spend(node.position, rule_memory::node_bytes(&text, above.name));
        let name = format!("{}.{text}", above.name);
        let origin = Origin { file: self.file.clone(), position: read.key_position };
        if let Some(first) = tree.holder(&text).filter(|_| !read.key.is_empty()) {
            let message = format!("duplicate descriptor composite key '{name}'");
            let help = match (&read.rate_limit, read.set.is_some(), first.set.is_some()) {
                _ if *first.text != *text => {
                    "remove it from one of the two: a value of a key has one rule on its level"
                }
                (_, true, true) => "remove one of the two, or list several limits in `rate_limits`",
                (_, true, false) | (_, false, true) => {
                    "remove one of the two: a network or a list matches all values in it, a value \
                     only the text, and comes first"
                }
                (None, ..) => "a descriptor must be unique on its level: merge the two",
                (Some(_), ..) => {
                    "a descriptor must be unique on its level: merge the two, and list several \
                     limits in `rate_limits`"
                }
            };
            let problem = self.problem(read.key_position, message, &read.key, help);
            self.problems.push(problem.with_first(first.origin.clone()));
        }
        let depth = above.entries.len() + 1;
        self.spend(node.position, rule_memory::rule_bytes(&name, depth, read.limit_bytes()));
        let patches = self.apply_patches(node, above.entries, &mut read, &name);
        if let Some(rate_limit) = &read.rate_limit {
            let patched = (!patches.is_empty()).then_some(node.position);
            self.lint_limits(rate_limit, patched);
        }

        let mut entries = above.entries.to_vec();
        let any_value = read.value.is_empty();
        let key_length = u32::try_from(read.key.len()).unwrap_or(u32::MAX);
        entries.push((read.key.into(), read.value.into()));
        let flags = NodeFlags {
            share_threshold: read.share_threshold,
            value_to_metric: read.value_to_metric,
            reserves: read.reserve.is_some(),
            any_value,
            key_length,
        };
        let value_to_metric = above.value_to_metric || read.value_to_metric;
        let set = read.set.map(|kind| Arc::new(ValueSet { kind, group: read.group }));
        let mut dropped = Tree::default();
        let mut dropped_rule = None;
        // A duplicate is read all the same, for the problems below it.
        let (rule, below) =
            tree.add(text, flags, set.clone(), origin).unwrap_or((&mut dropped_rule, &mut dropped));
        // After an error the set is not used, so its rules are not built.
        if let Some(rate_limit) = read.rate_limit
            && !self.problems.has_errors()
        {
            let previous = self.previous.rules.get(&*name).copied();
            let series = (read.detailed_metric || value_to_metric).then(|| {
                let known = previous.and_then(|rule| rule.series.clone());
                known.unwrap_or_else(|| Arc::new(RuleSeries::new(self.previous.series.clone())))
            });
            let limit_stats: &[LimitStats] = previous.map_or(&[], |rule| &rule.limit_stats);
            let reserve_stats = previous.and_then(|rule| rule.reserve_stats.clone());
            let bans = previous.and_then(|rule| rule.bans.clone());
            let built = Arc::new(Rule {
                domain_length: above.domain.len(),
                entries: entries.clone().into(),
                limit_stats: LimitStats::for_limits(&rate_limit.limits, limit_stats),
                reserve_stats: read.reserve.is_some().then(|| reserve_stats.unwrap_or_default()),
                bans: read.ban.is_some().then(|| bans.unwrap_or_default()),
                limit_name: rate_limit.name.into(),
                plan: (!rate_limit.limits.is_empty()).then(|| {
                    let plan = Plan::new(rate_limit.limits);
                    let plan = plan.with_near_limit_ratio(self.options.near_limit_ratio);
                    let leases = read.lease && read.reserve.is_none() && !self.together;
                    let plan = if leases { plan } else { plan.without_leases() };
                    Arc::new(match read.ban {
                        Some(ban) => plan.with_ban(ban),
                        None => plan,
                    })
                }),
                replaces: rate_limit.replaces.into_iter().map(|item| item.name).collect(),
                shadow_mode: read.shadow_mode,
                quota_mode: read.quota_mode,
                detailed_metric: read.detailed_metric,
                value_to_metric,
                metadata: read.metadata,
                reserve: read.reserve,
                lease: read.lease,
                set,
                stats: previous.map(|rule| rule.stats.clone()).unwrap_or_default(),
                series,
                origin: Origin { file: self.file.clone(), position: node.position },
                patches,
                name: name.clone().into(),
            });
            self.rules.push(built.clone());
            *rule = Some(built);
        }
        let above = Above { name: &name, domain: above.domain, entries: &entries, value_to_metric };
        self.level(&node.below.nodes, &above, below);
        below.shrink();
        self.equal_networks(below, 0);
    }
}
