//! Reads one rule file into the tree of rules, telling everything that is wrong with it.

mod budget;
mod limits;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use super::keys::Section;
use super::matcher::Node as Tree;
use super::problem::{Problem, Severity};
use super::problems::Problems;
use super::yaml::{Kind, Node, Place};
use super::{Origin, Rule, Stats};
use crate::failure::OnStoreFailure;
use crate::limit::Plan;
pub(super) use budget::Budget;
use values::{describe, is_null, text_of};

/// The root of a file: its domain and what goes below it.
pub(super) struct Root<'n> {
    pub domain: String,
    pub domain_place: Place,
    pub together: bool,
    pub on_store_failure: Option<OnStoreFailure>,
    descriptors: Vec<&'n Node<'n>>,
}

/// Reads one file, collecting rules and problems.
pub(super) struct Reader<'r> {
    /// The file as it is named in problems.
    pub file: Arc<str>,
    pub problems: &'r mut Problems,
    /// What its rules may still take.
    pub budget: Budget,
    pub rules: &'r mut Vec<Arc<Rule>>,
    /// Counts by rule name, carried over from the set before.
    pub stats: &'r HashMap<&'r str, Arc<Stats>>,
    /// What a key may weigh, in bytes.
    pub max_log_bytes: u64,
    /// Whether the file's domain is charged together; known once the root is read.
    pub together: bool,
}

/// The entries above a rule, and the name they make.
struct Above<'a> {
    name: &'a str,
    domain: &'a str,
    entries: &'a [(Arc<str>, Arc<str>)],
    value_to_metric: bool,
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
        if !matches!(node.kind(), Kind::Map(_)) {
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
            on_store_failure: None,
            descriptors: Vec::new(),
        };
        for (key, value) in self.fields(node, Section::Root) {
            match key {
                "domain" => {
                    root.domain = self.string(value, key);
                    root.domain_place = value.place;
                }
                "charge" => {
                    let words = [("each", false), ("together", true)];
                    root.together = self.choice(value, key, &words).unwrap_or(false);
                }
                "on_store_failure" => {
                    let words = OnStoreFailure::ALL.map(|policy| (policy.name(), policy));
                    root.on_store_failure = self.choice(value, key, &words);
                }
                "descriptors" => root.descriptors = self.maps(value, key),
                _ => {}
            }
        }
        self.together = root.together;
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
        if self.budget.is_spent() {
            return;
        }
        let (mut key, mut value) = (String::new(), String::new());
        let mut key_place = node.place;
        let mut limits = Vec::new();
        let mut several = None;
        let mut metadata = None;
        let mut children = Vec::new();
        let [mut shadow_mode, mut quota_mode, mut detailed_metric] = [false; 3];
        let [mut value_to_metric, mut share_threshold] = [false; 2];
        let mut share_at = node;
        for (field, at) in self.fields(node, Section::Descriptor) {
            match field {
                "key" => (key, key_place) = (self.string(at, field), at.place),
                "value" => value = self.string(at, field),
                "descriptors" => children = self.maps(at, field),
                // Nothing, written after a rate limit, takes it away.
                "rate_limit" if is_null(at) => limits.clear(),
                "rate_limit" => limits.push(at),
                "rate_limits" => several = Some(at),
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
        self.spend(node.place, budget::node_bytes(&text, above.name));
        let name = format!("{}.{text}", above.name);
        let origin = Origin { file: self.file.clone(), place: key_place };
        if let Some(first) = tree.origin(&text).filter(|_| !key.is_empty()) {
            let message = format!("duplicate descriptor composite key '{name}'");
            let help = "one descriptor of this key and value may stand on a level: merge the two";
            self.duplicate(key_place, message, &key, first.clone(), help);
        }
        let rate_limit = self.rate_limit(&limits, several, &key);
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
        self.spend(node.place, budget::rule_bytes(&name, entries.len(), rate_limit.as_ref()));
        let value_to_metric = above.value_to_metric || value_to_metric;
        let mut lost = Tree::default();
        let mut lost_rule = None;
        // A descriptor that cannot be added is read all the same, for what is wrong below it.
        let (rule, below) =
            tree.add(text, share_threshold, origin).unwrap_or((&mut lost_rule, &mut lost));
        // What is never used need not be made.
        if let Some(rate_limit) = rate_limit
            && !self.problems.has_errors()
        {
            let made = Arc::new(Rule {
                domain_length: above.domain.len(),
                entries: entries.clone().into(),
                limit_name: rate_limit.name.into(),
                plan: (!rate_limit.limits.is_empty())
                    .then(|| Arc::new(Plan::new(rate_limit.limits))),
                replaces: rate_limit.replaces.into(),
                shadow_mode,
                quota_mode,
                detailed_metric,
                value_to_metric,
                metadata,
                stats: self.stats.get(&*name).cloned().unwrap_or_default(),
                origin: Origin { file: self.file.clone(), place: node.place },
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

    pub fn error(&mut self, place: Place, message: impl Into<String>, text: &str, help: &str) {
        self.problem(Severity::Error, place, message, text, help);
    }

    /// An error that is one of two: the other is where `first` says.
    pub fn duplicate(
        &mut self,
        place: Place,
        message: String,
        text: &str,
        first: Origin,
        help: &str,
    ) {
        let problem = self.made(Severity::Error, place, message, text, help);
        self.problems.push(Problem { first: Some(Box::new(first)), ..problem });
    }

    fn warn(&mut self, place: Place, message: String, text: &str, help: &str) {
        self.problem(Severity::Warning, place, message, text, help);
    }

    fn problem(
        &mut self,
        severity: Severity,
        place: Place,
        message: impl Into<String>,
        text: &str,
        help: &str,
    ) {
        if !self.problems.has_room(severity) {
            return self.problems.omit(severity);
        }
        let problem = self.made(severity, place, message, text, help);
        self.problems.push(problem);
    }

    fn made(
        &self,
        severity: Severity,
        place: Place,
        message: impl Into<String>,
        text: &str,
        help: &str,
    ) -> Problem {
        Problem {
            severity,
            file: self.file.to_string(),
            place: Some(place),
            message: message.into(),
            text: text.to_owned(),
            first: None,
            help: help.to_owned(),
        }
    }

    /// Takes bytes of memory from the budget; the first that it has not are an error.
    fn spend(&mut self, place: Place, bytes: usize) {
        if let Err(error) = self.budget.spend(bytes) {
            self.error(place, error, "", budget::HELP);
        }
    }
}
