//! The rules of a domain, while they are gathered.

use std::collections::HashMap;

use super::yaml;
use weir_limit::Unit;
use weir_rules::source::RuleFile;
use weir_rules::tree::{Node, Style};
use weir_rules::{Options, Position, Problem, RuleSet};

/// The maximum number of limits of a rule.
const MAX_LIMITS: usize = 16;

/// Nodes that are only written need no position.
const NOWHERE: Position = Position::Field(0);

/// A rule file.
#[derive(Debug)]
pub(super) struct RuleText {
    /// A name for the file that contains the domain's.
    pub file: String,
    pub text: String,
}

impl RuleText {
    pub fn new(domain: &str, root: &Node<'_>) -> RuleText {
        RuleText { file: file_name(domain), text: yaml::write(root) }
    }
}

/// Returns a file name: each run of characters that are special in paths becomes an underscore.
fn file_name(domain: &str) -> String {
    let mut name = String::new();
    for c in domain.chars() {
        let is_plain = c.is_alphanumeric() || c == '-' || (c == '.' && !name.is_empty());
        match is_plain {
            true => name.push(c),
            false if name.ends_with('_') => {}
            false => name.push('_'),
        }
    }
    // Names of files have at most 255 bytes.
    let end = (0..=200).rev().find(|&end| name.is_char_boundary(end)).unwrap_or_default();
    name.truncate(end.min(name.len()));
    format!("{name}.yaml")
}

/// A limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub name: String,
    pub requests_per_unit: u32,
    pub unit: Unit,
    pub multiplier: u32,
    pub algorithm: Algorithm,
}

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    FixedWindow,
    /// A fixed window that starts with the day, month or year of the calendar.
    Calendar,
    SlidingWindow,
    /// With this burst.
    Gcra(u32),
    TokenBucket(u32),
    /// Requests at the same time: without a unit.
    Concurrency,
}

/// An entry of a descriptor. Without a value it matches every value.
pub(super) type PathEntry = (String, Option<String>);

#[derive(Debug, Default)]
struct Rule {
    entry: PathEntry,
    limits: Vec<Limit>,
    descriptors: Vec<Rule>,
    /// The descriptors by their names, see [`joined`].
    index: HashMap<String, usize>,
}

/// The rules of a domain.
#[derive(Debug, Default)]
pub(super) struct Domain {
    name: String,
    root: Rule,
}

impl Domain {
    pub fn new(name: &str) -> Domain {
        Domain { name: name.to_owned(), root: Rule::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.root.descriptors.is_empty()
    }

    /// Adds a limit of the descriptors with these entries.
    ///
    /// # Errors
    ///
    /// weir has no such rule.
    pub fn add(&mut self, path: Vec<PathEntry>, limit: Limit) -> Result<(), String> {
        check(&self.root, &path)?;
        self.check_alone(&path, &limit)?;
        self.insert(path, limit);
        Ok(())
    }

    /// Checks that the rule of a limit loads.
    fn check_alone(&self, path: &[PathEntry], limit: &Limit) -> Result<(), String> {
        let mut alone = Domain::new(&self.name);
        alone.insert(path.to_vec(), limit.clone());
        let RuleText { file: name, text } = alone.text();
        let file = RuleFile { name, text };
        let (_, problems) =
            RuleSet::compile(std::slice::from_ref(&file), &Options::default(), None);
        match problems.into_iter().find(Problem::is_error) {
            Some(Problem { message, help, .. }) => Err(format!("{message}; {help}")),
            None => Ok(()),
        }
    }

    fn insert(&mut self, path: Vec<PathEntry>, limit: Limit) {
        let rule = path.into_iter().fold(&mut self.root, Rule::below);
        rule.limits.push(limit);
    }

    pub fn text(&self) -> RuleText {
        let mut root = vec![(text("domain"), text(&self.name))];
        root.push((text("descriptors"), self.root.descriptors()));
        RuleText::new(&self.name, &Node::map(NOWHERE, root))
    }
}

/// Checks that a limit can be added, without a change.
fn check(root: &Rule, path: &[PathEntry]) -> Result<(), String> {
    if path.is_empty() {
        return Err("it applies to every request, but a rule needs an entry".to_owned());
    }
    let mut rule = Some(root);
    for entry in path {
        if entry.0.is_empty() {
            return Err("a key is empty".to_owned());
        }
        for text in std::iter::once(&entry.0).chain(&entry.1) {
            if text.contains('*') {
                return Err(format!("{text:?}: `*` matches anything in weir's rules"));
            }
        }
        if entry.1.as_deref() == Some("") {
            return Err(format!("{}: an empty value matches every value in weir's rules", entry.0));
        }
        rule = rule.and_then(|rule| rule.named(entry));
        if rule.is_some_and(|rule| rule.entry != *entry) {
            let name = joined(entry);
            return Err(format!(
                "{name:?}: weir joins key and value by `_`, and another rule has \
                                the same name"
            ));
        }
    }
    match rule {
        Some(rule) if rule.limits.len() >= MAX_LIMITS => {
            Err(format!("its rule has {MAX_LIMITS} limits already"))
        }
        _ => Ok(()),
    }
}

/// The name of an entry among the rules of its level.
fn joined((key, value): &PathEntry) -> String {
    value.as_ref().map_or_else(|| key.clone(), |value| format!("{key}_{value}"))
}

impl Rule {
    fn below(&mut self, entry: PathEntry) -> &mut Rule {
        let at = *self.index.entry(joined(&entry)).or_insert(self.descriptors.len());
        if at == self.descriptors.len() {
            self.descriptors.push(Rule { entry, ..Rule::default() });
        }
        &mut self.descriptors[at]
    }

    /// Returns the descriptor with the name of an entry.
    fn named(&self, entry: &PathEntry) -> Option<&Rule> {
        self.descriptors.get(*self.index.get(&joined(entry))?)
    }

    fn descriptors(&self) -> Node<'static> {
        Node::list(NOWHERE, self.descriptors.iter().map(Rule::node).collect())
    }

    fn node(&self) -> Node<'static> {
        let mut map = vec![(text("key"), text(&self.entry.0))];
        if let Some(value) = &self.entry.1 {
            map.push((text("value"), text(value)));
        }
        match self.limits.as_slice() {
            [] => {}
            [limit] => map.push((text("rate_limit"), limit.node())),
            limits => {
                let limits = limits.iter().map(Limit::node).collect();
                map.push((text("rate_limits"), Node::list(NOWHERE, limits)));
            }
        }
        if !self.descriptors.is_empty() {
            map.push((text("descriptors"), self.descriptors()));
        }
        Node::map(NOWHERE, map)
    }
}

impl Limit {
    fn node(&self) -> Node<'static> {
        let mut map = Vec::new();
        if !self.name.is_empty() {
            map.push((text("name"), text(&self.name)));
        }
        let (name, burst) = match self.algorithm {
            Algorithm::FixedWindow | Algorithm::Calendar => (None, None),
            Algorithm::SlidingWindow => (Some("sliding_window"), None),
            Algorithm::Gcra(burst) => (Some("gcra"), Some(burst)),
            Algorithm::TokenBucket(burst) => (Some("token_bucket"), Some(burst)),
            Algorithm::Concurrency => (Some("concurrency"), None),
        };
        map.extend(name.map(|name| (text("algorithm"), text(name))));
        if self.algorithm != Algorithm::Concurrency {
            map.push((text("unit"), text(self.unit.name())));
        }
        if self.multiplier != 1 {
            map.push((text("unit_multiplier"), number(self.multiplier)));
        }
        map.push((text("requests_per_unit"), number(self.requests_per_unit)));
        map.extend(burst.map(|burst| (text("burst"), number(burst))));
        if self.algorithm == Algorithm::Calendar {
            map.push((text("align"), text("calendar")));
        }
        Node::map(NOWHERE, map)
    }
}

fn text(text: &str) -> Node<'static> {
    Node::scalar(NOWHERE, text.to_owned(), Style::Text)
}

fn number(number: u32) -> Node<'static> {
    Node::scalar(NOWHERE, number.to_string(), Style::Plain)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the errors of `weir check`.
    pub fn errors(rules: &RuleText) -> String {
        let file = RuleFile { name: rules.file.clone(), text: rules.text.clone() };
        let (_, problems) =
            RuleSet::compile(std::slice::from_ref(&file), &Options::default(), None);
        let errors = problems.iter().filter(|problem| problem.is_error());
        errors.map(|error| format!("{error}\n{}", rules.text)).collect()
    }

    #[test]
    fn file_names_stay_in_their_directory() {
        for (domain, wanted) in [
            ("shop", "shop.yaml"),
            ("../a/b", "_._a_b.yaml"),
            (".hidden", "_hidden.yaml"),
            ("a.b-c", "a.b-c.yaml"),
            ("a\n\u{1b}b", "a_b.yaml"),
        ] {
            let name = file_name(domain);
            assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
            assert_eq!(name, wanted);
        }
        assert!(file_name(&"ü".repeat(300)).len() < 255);
    }

    fn entries() -> impl Strategy<Value = PathEntry> {
        let words = || {
            prop_oneof!["[ab_]{0,3}", any::<String>(), Just("*".to_owned()), Just("on".to_owned())]
        };
        (words(), prop::option::of(words()))
    }

    fn limits() -> impl Strategy<Value = Limit> {
        let unit = prop::sample::select(Unit::ALL.to_vec());
        let algorithm = prop_oneof![
            Just(Algorithm::FixedWindow),
            Just(Algorithm::Calendar),
            Just(Algorithm::SlidingWindow),
            (1..1_000u32).prop_map(Algorithm::Gcra),
            (1..1_000u32).prop_map(Algorithm::TokenBucket),
            Just(Algorithm::Concurrency),
        ];
        (any::<String>(), 1..1_000u32, unit, 0..200u32, algorithm).prop_map(
            |(name, requests_per_unit, unit, multiplier, algorithm)| Limit {
                name,
                requests_per_unit,
                unit,
                multiplier,
                algorithm,
            },
        )
    }

    proptest! {
        #[test]
        fn the_rules_load(
            name in "[a-z]{1,5}",
            added in prop::collection::vec((prop::collection::vec(entries(), 0..3), limits()), 0..30)
        ) {
            let mut domain = Domain::new(&name);
            let mut accepted = 0;
            for (path, limit) in added {
                accepted += usize::from(domain.add(path, limit).is_ok());
            }
            prop_assert_eq!(errors(&domain.text()), "");
            let limits = domain.text().text.matches("requests_per_unit: ").count();
            prop_assert!(limits >= accepted, "{limits} of {accepted}");
        }
    }
}
