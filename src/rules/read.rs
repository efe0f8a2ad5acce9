//! Reads one rule file into the tree of rules, telling everything that is wrong with it.

use std::collections::HashMap;
use std::sync::Arc;

use super::keys::{At, Standing, standing};
use super::matcher::Node as Tree;
use super::problem::{Problem, Severity};
use super::yaml::{Kind, Node, Place, Value};
use super::{Metadata, Origin, Rule, Stats};
use crate::limit::{Limit, Plan, Unit};

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
        let mut share_place = node.place;
        for (field, at) in self.fields(node, At::Descriptor) {
            match field {
                "key" => (key, key_place) = (self.string(at, field), at.place),
                "value" => value = self.string(at, field),
                "descriptors" => children = self.maps(at, field),
                "rate_limit" => limits.push(at),
                "shadow_mode" => shadow_mode = self.bool(at, field),
                "quota_mode" => quota_mode = self.bool(at, field),
                "detailed_metric" => detailed_metric = self.bool(at, field),
                "value_to_metric" => value_to_metric = self.bool(at, field),
                "share_threshold" => {
                    (share_threshold, share_place) = (self.bool(at, field), at.place);
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
            self.error(share_place, message, "true", help);
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
        let place = nodes.iter().rfind(|node| !is_null(node))?.place;
        let mut made = RateLimit::default();
        let (mut requests_per_unit, mut unlimited) = (0, false);
        let (mut unit_text, mut unit_place) = (String::new(), place);
        let (mut multiplier, mut multiplier_place) = (1, place);
        let mut replaces = Vec::new();
        for node in nodes.iter().filter(|node| !is_null(node)) {
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

    /// The fields of a map with their values, in order, those that are out of place left out.
    fn fields<'n>(&mut self, node: &'n Node<'n>, at: At) -> Vec<(&'static str, &'n Node<'n>)> {
        let mut fields = Vec::new();
        for (key, value) in self.entries(node) {
            let Some(name) = self.key(key) else { continue };
            match standing(&name, at) {
                Standing::Right(name) => fields.push((name, value)),
                Standing::Ignored(help) => {
                    let message = format!("'{name}' has no effect here");
                    self.problem(Severity::Warning, key.place, message, &name, &help);
                    self.ignored(value, at);
                }
                Standing::Misplaced(help) => {
                    let message = format!("config error, '{name}' does not belong here");
                    self.error(key.place, message, &name, &help);
                }
                Standing::Unknown(help) => {
                    let message = format!("config error, unknown key '{name}'");
                    self.error(key.place, message, &name, &help);
                }
            }
        }
        fields
    }

    /// The keys and values of a map, those of `<<` before its own.
    fn entries<'n>(&mut self, node: &'n Node<'n>) -> Vec<(&'n Node<'n>, &'n Node<'n>)> {
        let Kind::Map(items) = &node.kind else {
            if !is_null(node) {
                let message =
                    format!("error loading config file: cannot use {} as a map", describe(node));
                self.error(node.place, message, &text_of(node), "write `key: value` pairs here");
            }
            return Vec::new();
        };
        let is_merge = |key: &Node<'_>| matches!(&key.kind, Kind::Scalar(scalar) if scalar.plain && **scalar.text == *"<<");
        let mut entries = Vec::new();
        for (_, value) in items.iter().filter(|(key, _)| is_merge(key)) {
            match &value.kind {
                Kind::List(maps) => {
                    maps.iter().rev().for_each(|map| entries.extend(self.entries(map)));
                }
                _ => entries.extend(self.entries(value)),
            }
        }
        entries.extend(items.iter().filter(|(key, _)| !is_merge(key)).map(|(k, v)| (k, v)));
        entries
    }

    /// A key's text.
    fn key(&mut self, node: &Node<'_>) -> Option<String> {
        if let Kind::Scalar(scalar) = &node.kind
            && let Value::Text(text) = scalar.value()
        {
            return Some(text.to_owned());
        }
        let text = text_of(node);
        let message = format!("config error, key is not of type string: {text}");
        let help = format!("put it in quotes (\"{text}\") if it is meant, or write a known key");
        self.error(node.place, message, &text, &help);
        None
    }

    /// Checks the keys of what is ignored: the reference refuses unknown ones there too.
    fn ignored(&mut self, node: &Node<'_>, at: At) {
        match &node.kind {
            Kind::Scalar(_) => {}
            Kind::List(items) => items.iter().for_each(|item| self.ignored(item, at)),
            Kind::Map(_) => {
                for (key, value) in self.entries(node) {
                    if let Some(name) = self.key(key)
                        && let Standing::Unknown(help) = standing(&name, at)
                    {
                        let message = format!("config error, unknown key '{name}'");
                        self.error(key.place, message, &name, &help);
                    }
                    self.ignored(value, at);
                }
            }
        }
    }

    /// A list of maps.
    fn maps<'n>(&mut self, node: &'n Node<'n>, field: &str) -> Vec<&'n Node<'n>> {
        match &node.kind {
            _ if is_null(node) => Vec::new(),
            Kind::List(items) => items
                .iter()
                .filter(|item| {
                    let map = matches!(item.kind, Kind::Map(_));
                    if !map {
                        let text = text_of(item);
                        let message = format!(
                            "config error, yaml file contains list of type other than map: {text}"
                        );
                        let help = format!("write each item of `{field}` as `- key: value`");
                        self.error(item.place, message, &text, &help);
                    }
                    map
                })
                .collect(),
            _ => {
                let message = format!(
                    "error loading config file: cannot use {} as the list `{field}`",
                    describe(node)
                );
                let help = format!("write the items of `{field}` each with a `-` before it");
                self.error(node.place, message, &text_of(node), &help);
                Vec::new()
            }
        }
    }

    /// Text; an unquoted number or boolean is taken as it is written.
    fn string(&mut self, node: &Node<'_>, field: &str) -> String {
        if let Kind::Scalar(scalar) = &node.kind {
            match scalar.value() {
                Value::Null => return String::new(),
                Value::Text(_) | Value::Bool(_) | Value::Int(_) => return scalar.text.to_string(),
                Value::Other => {
                    let text = text_of(node);
                    let message = format!("error checking config: `{field}` is {text}");
                    self.error(
                        node.place,
                        message,
                        &text,
                        &format!("put it in quotes: \"{text}\""),
                    );
                    return String::new();
                }
            }
        }
        let message = format!("error loading config file: cannot use {} as text", describe(node));
        self.error(node.place, message, &text_of(node), &format!("write text after `{field}:`"));
        String::new()
    }

    fn bool(&mut self, node: &Node<'_>, field: &str) -> bool {
        if let Kind::Scalar(scalar) = &node.kind {
            match scalar.value() {
                Value::Null => return false,
                Value::Bool(value) => return value,
                _ => {}
            }
        }
        let text = text_of(node);
        let message =
            format!("error loading config file: cannot use {text} as a boolean for `{field}`");
        self.error(node.place, message, &text, "write true or false, without quotes");
        false
    }

    fn u32(&mut self, node: &Node<'_>, field: &str) -> u32 {
        let mut message = "error loading config file";
        if let Kind::Scalar(scalar) = &node.kind {
            match scalar.value() {
                Value::Null => return 0,
                Value::Int(number) => {
                    if let Ok(number) = u32::try_from(number) {
                        return number;
                    }
                }
                Value::Other => message = "error checking config",
                _ => {}
            }
        }
        let text = text_of(node);
        let message = format!("{message}: cannot use {text} as a number for `{field}`");
        let help = "write a whole number from 0 to 4294967295, without quotes";
        self.error(node.place, message, &text, help);
        0
    }

    fn metadata(&mut self, node: &Node<'_>) -> Option<Metadata> {
        if is_null(node) {
            return None;
        }
        match self.json(node) {
            serde_json::Value::Object(map) => Some(map),
            _ => {
                let message = "error parsing metadata: it is not a map";
                self.error(node.place, message, &text_of(node), "write `key: value` pairs");
                None
            }
        }
    }

    fn json(&mut self, node: &Node<'_>) -> serde_json::Value {
        use serde_json::Value as Json;
        match &node.kind {
            Kind::Scalar(scalar) => match scalar.value() {
                Value::Null => Json::Null,
                Value::Bool(value) => value.into(),
                Value::Int(number) => number.into(),
                Value::Text(text) => text.into(),
                Value::Other => match scalar.text.parse::<f64>() {
                    Ok(number) if number.is_finite() => number.into(),
                    _ => scalar.text.to_string().into(),
                },
            },
            Kind::List(items) => items.iter().map(|item| self.json(item)).collect(),
            Kind::Map(_) => {
                let mut map = Metadata::new();
                for (key, value) in self.entries(node) {
                    match &key.kind {
                        Kind::Scalar(scalar) if matches!(scalar.value(), Value::Text(_)) => {
                            let value = self.json(value);
                            map.insert(scalar.text.to_string(), value);
                        }
                        _ => {
                            let text = text_of(key);
                            let message =
                                format!("error parsing metadata: the key {text} is not text");
                            let help = format!("put it in quotes: \"{text}\"");
                            self.error(key.place, message, &text, &help);
                        }
                    }
                }
                map.into()
            }
        }
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

fn is_null(node: &Node<'_>) -> bool {
    matches!(&node.kind, Kind::Scalar(scalar) if scalar.value() == Value::Null)
}

/// A node in a word or two.
fn describe(node: &Node<'_>) -> String {
    match &node.kind {
        Kind::Scalar(_) => format!("`{}`", text_of(node)),
        Kind::List(_) => "a list".to_owned(),
        Kind::Map(_) => "a map".to_owned(),
    }
}

/// A node's text, cut where it gets long.
fn text_of(node: &Node<'_>) -> String {
    match &node.kind {
        Kind::Scalar(scalar) => scalar.text.chars().take(80).collect(),
        Kind::List(_) => "[…]".to_owned(),
        Kind::Map(_) => "{…}".to_owned(),
    }
}
