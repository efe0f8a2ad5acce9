//! Reads one rule file into the tree of rules, telling everything that is wrong with it.

mod values;

use std::collections::HashMap;
use std::sync::Arc;

use super::keys::At;
use super::matcher::Node as Tree;
use super::problem::{Problem, Severity};
use super::yaml::{Kind, Node, Place};
use super::{Origin, Rule, Stats};
use crate::limit::{Limit, Plan, Unit};
use values::{describe, is_null, text_of};

/// The root of a file: its domain and what goes below it.
pub(super) struct Root<'n> {
    pub domain: String,
    pub domain_place: Place,
    pub together: bool,
    descriptors: Vec<&'n Node<'n>>,
}

/// Reads one file, collecting rules and problems.
pub(super) struct Reader<'r> {
    /// The file as it is named in problems.
    pub file: Arc<str>,
    pub problems: &'r mut Vec<Problem>,
    pub rules: &'r mut Vec<Arc<Rule>>,
    /// Counts by rule name, carried over from the set before.
    pub stats: &'r HashMap<&'r str, Arc<Stats>>,
}

/// The entries above a rule, and the name they make.
struct Above<'a> {
    name: &'a str,
    domain: &'a str,
    entries: &'a [(Box<str>, Box<str>)],
    value_to_metric: bool,
}

/// What `rate_limit` says.
#[derive(Default)]
struct RateLimit {
    name: String,
    /// None: unlimited.
    limit: Option<Limit>,
    replaces: Vec<Box<str>>,
}

impl Reader<'_> {
    /// Reads the root; none where it is so wrong that nothing below it can be read.
    pub fn root<'n>(&mut self, node: Option<&'n Node<'n>>) -> Option<Root<'n>> {
        let start = Place { line: 1, column: 1 };
        let node = match node {
            Some(node) if !is_null(node) => node,
            _ => {
                self.empty_domain(start);
                return None;
            }
        };
        if !matches!(node.kind, Kind::Map(_)) {
            let what = describe(node);
            let message = format!("error loading config file: the root is {what}, not a map");
            let help = "begin the file with `domain: NAME` and `descriptors:`";
            self.error(node.place, message, &text_of(node), help);
            return None;
        }
        let mut root = Root {
            domain: String::new(),
            domain_place: node.place,
            together: false,
            descriptors: Vec::new(),
        };
        for (key, value) in self.fields(node, At::Root) {
            match key {
                "domain" => {
                    root.domain = self.string(value, key);
                    root.domain_place = value.place;
                }
                "descriptors" => root.descriptors = self.maps(value, key),
                _ => {}
            }
        }
        if root.domain.is_empty() {
            self.empty_domain(root.domain_place);
        }
        Some(root)
    }

    fn empty_domain(&mut self, place: Place) {
        let help = "write `domain: NAME`, the domain that Envoy's filter is configured with";
        self.error(place, "config file cannot have empty domain", "", help);
    }

    /// Reads the descriptors of a root into a domain's tree.
    pub fn descriptors(&mut self, root: &Root<'_>, tree: &mut Tree) {
        let above = Above {
            name: &root.domain,
            domain: &root.domain,
            entries: &[],
            value_to_metric: false,
        };
        for node in &root.descriptors {
            self.descriptor(node, &above, tree);
        }
        tree.shrink();
    }

    fn descriptor(&mut self, node: &Node<'_>, above: &Above<'_>, tree: &mut Tree) {
        let (mut key, mut value) = (String::new(), String::new());
        let mut key_place = node.place;
        let mut limits = Vec::new();
        let mut metadata = None;
        let mut children = Vec::new();
        let [mut shadow_mode, mut quota_mode, mut detailed_metric] = [false; 3];
        let [mut value_to_metric, mut share_threshold] = [false; 2];
        let mut share_at = node;
        for (field, at) in self.fields(node, At::Descriptor) {
            match field {
                "key" => (key, key_place) = (self.string(at, field), at.place),
                "value" => value = self.string(at, field),
                "descriptors" => children = self.maps(at, field),
                // Nothing, written after a rate limit, takes it away.
                "rate_limit" if is_null(at) => limits.clear(),
                "rate_limit" => limits.push(at),
                "shadow_mode" => shadow_mode = self.bool(at, field),
                "quota_mode" => quota_mode = self.bool(at, field),
                "detailed_metric" => detailed_metric = self.bool(at, field),
                "value_to_metric" => value_to_metric = self.bool(at, field),
                "share_threshold" => {
                    (share_threshold, share_at) = (self.bool(at, field), at);
                }
                "metadata" => metadata = self.metadata(at),
                _ => {}
            }
        }
        if key.is_empty() {
            let help = "write `key: NAME`, the key of the descriptor's entry";
            self.error(key_place, "descriptor has empty key", "", help);
        }
        let text = if value.is_empty() { key.clone() } else { format!("{key}_{value}") };
        let name = format!("{}.{text}", above.name);
        if !key.is_empty() && tree.contains(&text) {
            let message = format!("duplicate descriptor composite key '{name}'");
            let help = "one descriptor of this key and value may stand on a level: merge the two";
            self.error(key_place, message, &key, help);
        }
        let rate_limit = self.rate_limit(&limits);
        if share_threshold && !text.contains('*') {
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), \
                 but found key '{text}'"
            );
            let help = "put a `*` into `value`, or leave share_threshold out";
            self.error(share_at.place, message, &text_of(share_at), help);
        }

        let mut entries = above.entries.to_vec();
        entries.push((key.into(), value.into()));
        let value_to_metric = above.value_to_metric || value_to_metric;
        let mut lost = Tree::default();
        let mut lost_rule = None;
        // A descriptor that cannot be added is read all the same, for what is wrong below it.
        let (rule, below) = tree.add(text, share_threshold).unwrap_or((&mut lost_rule, &mut lost));
        if let Some(rate_limit) = rate_limit {
            let made = Arc::new(Rule {
                domain_length: above.domain.len(),
                entries: entries.clone().into(),
                limit_name: rate_limit.name.into(),
                plan: rate_limit.limit.map(|limit| Arc::new(Plan::new(vec![limit]))),
                replaces: rate_limit.replaces.into(),
                shadow_mode,
                quota_mode,
                detailed_metric,
                value_to_metric,
                metadata,
                stats: self.stats.get(&*name).cloned().unwrap_or_default(),
                origin: Origin { file: self.file.clone(), line: node.place.line },
                name: name.clone().into(),
            });
            self.rules.push(made.clone());
            *rule = Some(made);
        }
        let above = Above { name: &name, domain: above.domain, entries: &entries, value_to_metric };
        for child in children {
            self.descriptor(child, &above, below);
        }
        below.shrink();
    }

    /// Reads `rate_limit`; where it stands twice, the later one's keys over the earlier one's.
    fn rate_limit(&mut self, nodes: &[&Node<'_>]) -> Option<RateLimit> {
        let place = nodes.last()?.place;
        let mut made = RateLimit::default();
        let (mut requests_per_unit, mut unlimited) = (0, false);
        let (mut unit_text, mut unit_place) = (String::new(), place);
        let (mut multiplier, mut multiplier_place) = (1, place);
        let mut replaces = Vec::new();
        for node in nodes {
            for (field, at) in self.fields(node, At::Limit) {
                match field {
                    "requests_per_unit" => requests_per_unit = self.u32(at, field),
                    "unit" => (unit_text, unit_place) = (self.string(at, field), at.place),
                    "unit_multiplier" => {
                        (multiplier, multiplier_place) = (self.u32(at, field), at.place);
                    }
                    "unlimited" => unlimited = self.bool(at, field),
                    "name" => made.name = self.string(at, field),
                    "replaces" => replaces = self.maps(at, field),
                    _ => {}
                }
            }
        }
        let unit = Unit::from_name(&unit_text);
        match (unlimited, unit) {
            (true, Some(_)) => {
                let message = "should not specify rate limit unit when unlimited";
                self.error(unit_place, message, &unit_text, "leave out `unit` or `unlimited`");
            }
            (true, None) => {}
            (false, None) => {
                let help = "write one of second, minute, hour, day, week, month, year";
                let message = format!("invalid rate limit unit '{unit_text}'");
                self.error(unit_place, message, &unit_text, help);
            }
            (false, Some(unit)) => match Limit::fixed_window(requests_per_unit, unit, multiplier) {
                Some(limit) => {
                    let name = made.name.clone().into();
                    made.limit = Some(Limit { name, ..limit });
                }
                None => {
                    let message = format!(
                        "unit_multiplier {multiplier} makes a period that is not \
                             between one second and 100 years"
                    );
                    let help = "write a number of at least 1, and a period of at most 100 years";
                    self.error(multiplier_place, message, &multiplier.to_string(), help);
                }
            },
        }
        for node in replaces {
            let mut replaced = String::new();
            for (field, at) in self.fields(node, At::Replace) {
                if field == "name" {
                    replaced = self.string(at, field);
                }
            }
            if replaced.is_empty() {
                let help = "write `- name: NAME`, the `name` of another rule's rate_limit";
                self.error(node.place, "should not have an empty replaces entry", "", help);
            } else if replaced == made.name {
                let message = "replaces should not contain name of same descriptor";
                self.error(node.place, message, "", "name another rule, or leave it out");
            }
            made.replaces.push(replaced.into());
        }
        Some(made)
    }

    pub fn error(&mut self, place: Place, message: impl Into<String>, text: &str, help: &str) {
        self.problem(Severity::Error, place, message, text, help);
    }

    fn problem(
        &mut self,
        severity: Severity,
        place: Place,
        message: impl Into<String>,
        text: &str,
        help: &str,
    ) {
        self.problems.push(Problem {
            severity,
            file: self.file.to_string(),
            place: Some(place),
            message: message.into(),
            text: text.to_owned(),
            help: help.to_owned(),
        });
    }
}
