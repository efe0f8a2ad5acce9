//! Reads the tree of one document into the matcher of its domain, and reports every problem.

mod budget;
mod limits;
mod lint;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use super::keys::Section;
use super::matcher::{MatcherNode as Tree, NodeFlags};
use super::position::Position;
use super::problem::{Problem, Severity};
use super::problems::Problems;
use super::stats::{LimitStats, RuleSeriesBudget};
use super::tree::{Content, Node};
use super::{Origin, Rule, RuleSeries};
use crate::failure::OnStoreFailure;
use crate::limit::Plan;
pub(super) use budget::Budget;
pub(super) use lint::ReplacedName;
use values::{describe, is_null, text_of};

/// The root of a document: its domain and descriptors.
pub(super) struct Root<'n> {
    pub domain: String,
    pub domain_position: Position,
    pub together: bool,
    pub on_store_failure: Option<OnStoreFailure>,
    descriptors: Vec<&'n Node<'n>>,
}

/// Reads one document, and collects rules and problems.
pub(super) struct Reader<'r> {
    /// The name in problems.
    pub file: Arc<str>,
    pub problems: &'r mut Problems,
    /// The memory that its rules may still take.
    pub budget: Budget,
    pub rules: &'r mut Vec<Arc<Rule>>,
    /// The rules of the previous set by name, whose counters are carried over.
    pub previous: &'r HashMap<&'r str, &'r Rule>,
    pub series: &'r Arc<RuleSeriesBudget>,
    /// The maximum state of one key, in bytes.
    pub max_log_bytes: u64,
    /// The `charge` of the domain; known once the root is read.
    pub together: bool,
    /// Whether to warn about what is valid, but probably not meant.
    pub lint: bool,
    /// The names in `replaces`, to lint.
    pub replaced: Vec<ReplacedName>,
}

/// The entries that lead to a descriptor, and the name that they form.
struct Above<'a> {
    name: &'a str,
    domain: &'a str,
    entries: &'a [(Arc<str>, Arc<str>)],
    value_to_metric: bool,
}

impl Reader<'_> {
    /// Reads the root; none if it is not a map.
    pub fn root<'n>(&mut self, node: Option<&'n Node<'n>>) -> Option<Root<'n>> {
        let start = Position::in_text(1, 1);
        let node = match node {
            Some(node) if !is_null(node) => node,
            _ => {
                self.empty_domain(start);
                return None;
            }
        };
        if !matches!(node.content(), Content::Map(_)) {
            let what = describe(node);
            let message = format!("error loading config file: the root is {what}, not a map");
            let help = "start the file with `domain: NAME` and `descriptors:`";
            self.error(node.position, message, &text_of(node), help);
            return None;
        }
        let mut root = Root {
            domain: String::new(),
            domain_position: node.position,
            together: false,
            on_store_failure: None,
            descriptors: Vec::new(),
        };
        for (key, value) in self.fields(node, Section::Root) {
            match key {
                "domain" => {
                    root.domain = self.string(value, key);
                    root.domain_position = value.position;
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
            self.empty_domain(root.domain_position);
        }
        Some(root)
    }

    fn empty_domain(&mut self, position: Position) {
        let help = "write `domain: NAME`, the domain that Envoy's filter is configured with";
        self.error(position, "config file cannot have empty domain", "", help);
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
        let (mut key_position, mut value_position) = (node.position, node.position);
        let mut limits = Vec::new();
        let mut rate_limits = None;
        let mut metadata = None;
        let mut children = Vec::new();
        let [mut shadow_mode, mut quota_mode, mut detailed_metric] = [false; 3];
        let [mut value_to_metric, mut share_threshold] = [false; 2];
        let mut share_node = node;
        for (field, child) in self.fields(node, Section::Descriptor) {
            match field {
                "key" => (key, key_position) = (self.string(child, field), child.position),
                "value" => (value, value_position) = (self.string(child, field), child.position),
                "descriptors" => children = self.maps(child, field),
                // A later null removes the rate limit, as in the reference.
                "rate_limit" if is_null(child) => limits.clear(),
                "rate_limit" => limits.push(child),
                "rate_limits" => rate_limits = Some(child),
                "shadow_mode" => shadow_mode = self.bool(child, field),
                "quota_mode" => quota_mode = self.bool(child, field),
                "detailed_metric" => detailed_metric = self.bool(child, field),
                "value_to_metric" => value_to_metric = self.bool(child, field),
                "share_threshold" => {
                    (share_threshold, share_node) = (self.bool(child, field), child);
                }
                "metadata" => metadata = self.metadata(child),
                _ => {}
            }
        }
        if key.is_empty() {
            let help = "write `key: NAME`, the key of the descriptor's entry";
            self.error(key_position, "descriptor has empty key", "", help);
        }
        let text = if value.is_empty() { key.clone() } else { format!("{key}_{value}") };
        self.spend(node.position, budget::node_bytes(&text, above.name));
        let name = format!("{}.{text}", above.name);
        let origin = Origin { file: self.file.clone(), position: key_position };
        if let Some(first) = tree.origin(&text).filter(|_| !key.is_empty()) {
            let message = format!("duplicate descriptor composite key '{name}'");
            let help = match limits.is_empty() && rate_limits.is_none() {
                true => "a descriptor must be unique on its level: merge the two",
                false => {
                    "a descriptor must be unique on its level: merge the two, and list several \
                     limits in `rate_limits`"
                }
            };
            self.duplicate(key_position, message, &key, first.clone(), help);
        }
        self.lint_value(&key, &value, value_position);
        let rate_limit = self.rate_limit(&limits, rate_limits, &key);
        if share_threshold && !text.contains('*') {
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), \
                 but found key '{text}'"
            );
            let help = "put a `*` into `value`, or remove share_threshold";
            self.error(share_node.position, message, &text_of(share_node), help);
        }

        let mut entries = above.entries.to_vec();
        let any_value = value.is_empty();
        entries.push((key.into(), value.into()));
        self.spend(node.position, budget::rule_bytes(&name, entries.len(), rate_limit.as_ref()));
        let flags = NodeFlags { share_threshold, value_to_metric, any_value };
        let value_to_metric = above.value_to_metric || value_to_metric;
        let mut dropped = Tree::default();
        let mut dropped_rule = None;
        // A duplicate is read all the same, for the problems below it.
        let (rule, below) =
            tree.add(text, flags, origin).unwrap_or((&mut dropped_rule, &mut dropped));
        // After an error the set is not used, so its rules are not built.
        if let Some(rate_limit) = rate_limit
            && !self.problems.has_errors()
        {
            let previous = self.previous.get(&*name).copied();
            let series = (detailed_metric || value_to_metric).then(|| {
                let known = previous.and_then(|rule| rule.series.clone());
                known.unwrap_or_else(|| Arc::new(RuleSeries::new(self.series.clone())))
            });
            let built = Arc::new(Rule {
                domain_length: above.domain.len(),
                entries: entries.clone().into(),
                limit_stats: LimitStats::for_limits(&rate_limit.limits, previous),
                limit_name: rate_limit.name.into(),
                plan: (!rate_limit.limits.is_empty())
                    .then(|| Arc::new(Plan::new(rate_limit.limits))),
                replaces: rate_limit.replaces.into(),
                shadow_mode,
                quota_mode,
                detailed_metric,
                value_to_metric,
                metadata,
                stats: previous.map(|rule| rule.stats.clone()).unwrap_or_default(),
                series,
                origin: Origin { file: self.file.clone(), position: node.position },
                name: name.clone().into(),
            });
            self.rules.push(built.clone());
            *rule = Some(built);
        }
        let above = Above { name: &name, domain: above.domain, entries: &entries, value_to_metric };
        for child in children {
            self.descriptor(child, &above, below);
        }
        below.shrink();
    }

    pub fn error(
        &mut self,
        position: Position,
        message: impl Into<String>,
        text: &str,
        help: &str,
    ) {
        self.problem(Severity::Error, position, message, text, help);
    }

    /// Reports a duplicate, with the position of the first.
    pub fn duplicate(
        &mut self,
        position: Position,
        message: String,
        text: &str,
        first: Origin,
        help: &str,
    ) {
        let problem = self.new_problem(Severity::Error, position, message, text, help);
        self.problems.push(Problem { first: Some(Box::new(first)), ..problem });
    }

    fn warn(&mut self, position: Position, message: String, text: &str, help: &str) {
        self.problem(Severity::Warning, position, message, text, help);
    }

    fn problem(
        &mut self,
        severity: Severity,
        position: Position,
        message: impl Into<String>,
        text: &str,
        help: &str,
    ) {
        if !self.problems.has_room(severity) {
            return self.problems.omit(severity);
        }
        let problem = self.new_problem(severity, position, message, text, help);
        self.problems.push(problem);
    }

    fn new_problem(
        &self,
        severity: Severity,
        position: Position,
        message: impl Into<String>,
        text: &str,
        help: &str,
    ) -> Problem {
        Problem {
            severity,
            file: self.file.to_string(),
            position: Some(position),
            message: message.into(),
            text: text.to_owned(),
            first: None,
            help: help.to_owned(),
        }
    }

    /// Spends bytes of the budget, and reports the first excess.
    fn spend(&mut self, position: Position, bytes: usize) {
        if let Err(error) = self.budget.spend(bytes) {
            self.error(position, error, "", budget::HELP);
        }
    }
}
