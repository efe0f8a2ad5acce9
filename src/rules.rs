//! What is limited: rule files, what is wrong with them, and the matcher they compile to.

mod keys;
mod matcher;
mod problem;
mod problems;
mod read;
pub mod source;
mod stats;
#[cfg(test)]
mod tests;
pub mod xds;
mod yaml;
mod yaml_help;

pub use matcher::Found;
pub(crate) use problem::truncate;
pub use problem::{Problem, Severity};
pub use problems::{DEFAULT_MAX_PROBLEMS, Omitted, Problems};
pub use stats::Stats;
pub use yaml::Place;

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};
use std::sync::Arc;

use crate::entry::Entry;
use crate::failure::OnStoreFailure;
use crate::limit::Plan;
use source::{RuleFile, Selection};

/// What a rule says of itself for dynamic metadata.
pub type Metadata = serde_json::Map<String, serde_json::Value>;

/// An immutable set of rules, compiled. Swapped whole.
#[derive(Debug, Default)]
pub struct RuleSet {
    domains: HashMap<Box<str>, Domain>,
    /// In the order of the files.
    rules: Vec<Arc<Rule>>,
}

/// The rules of one domain.
#[derive(Debug, Default)]
pub struct Domain {
    /// Whether all descriptors of a request are charged or none.
    pub together: bool,
    /// What to answer when the store fails; none: as the settings say.
    pub on_store_failure: Option<OnStoreFailure>,
    root: matcher::Node,
}

/// How rule files are compiled.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether several files may add to one domain.
    pub merge_domains: bool,
    /// What the state of one key may come to, in bytes.
    pub max_log_bytes: u64,
    /// How many errors, and how many warnings, of a file are listed.
    pub max_problems: usize,
}

impl Default for Options {
    fn default() -> Self {
        let max_problems = DEFAULT_MAX_PROBLEMS;
        Options { merge_domains: false, max_log_bytes: 16 << 20, max_problems }
    }
}

/// A node of a rule file that has limits, or lifts them.
#[derive(Debug)]
pub struct Rule {
    /// `domain.key_value.key…`, as the reference names it in its metrics.
    pub name: Box<str>,
    domain_length: usize,
    entries: Box<[(Arc<str>, Arc<str>)]>,
    limit_name: Box<str>,
    /// What to charge; none where the rule is unlimited.
    pub plan: Option<Arc<Plan>>,
    /// Names of rules this one sets aside, in the same request.
    pub replaces: Box<[Box<str>]>,
    pub shadow_mode: bool,
    pub quota_mode: bool,
    /// Metrics of this rule are told apart by all values of the request.
    pub detailed_metric: bool,
    /// Metrics of this rule are told apart by values that nothing in the rule names.
    pub value_to_metric: bool,
    pub metadata: Option<Metadata>,
    pub stats: Arc<Stats>,
    pub origin: Origin,
}

/// Where something was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub file: Arc<str>,
    pub place: Place,
}

/// `file:line:column`
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.place.line, self.place.column)
    }
}

/// Rule files, read and compiled.
#[derive(Debug)]
pub struct Loaded {
    /// Of use only where no problem is an error.
    pub rules: RuleSet,
    pub problems: Vec<Problem>,
    /// How many problems there are beyond those.
    pub omitted: Omitted,
    pub files: Vec<RuleFile>,
}

impl Loaded {
    /// Reads and compiles what `selection` names; counts are carried over from `previous`.
    pub fn read(selection: &Selection, options: &Options, previous: Option<&RuleSet>) -> Loaded {
        let (files, found) = selection.read();
        let mut problems = Problems::new(options.max_problems);
        problems.of_files(found);
        Loaded::compile(files, problems, options, previous)
    }

    /// Compiles files that were read, with the problems there were.
    pub fn compile(
        files: Vec<RuleFile>,
        mut problems: Problems,
        options: &Options,
        previous: Option<&RuleSet>,
    ) -> Loaded {
        let rules = RuleSet::compile_into(&files, options, previous, &mut problems);
        let (problems, omitted) = problems.into_parts();
        Loaded { rules, problems, omitted, files }
    }

    /// Whether no problem is an error.
    pub fn is_good(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    /// How many problems of a severity there are, listed or not.
    pub fn count(&self, severity: Severity) -> usize {
        let listed = self.problems.iter().filter(|problem| problem.severity == severity).count();
        listed + self.omitted.of(severity)
    }

    /// Problems in full, with the lines they stand in.
    pub fn render<'p>(&self, problems: impl Iterator<Item = &'p Problem>) -> String {
        let problems: Vec<&Problem> = problems.collect();
        let lines = self.lines(&problems);
        let mut out = String::new();
        for problem in problems {
            let line = problem.place.and_then(|place| {
                lines.get(&(problem.file.as_str(), place.line)).copied().flatten()
            });
            out += &problem.render(line);
            out.push('\n');
        }
        out
    }

    /// The lines that problems stand in, by file and number. Files may be large: one way through
    /// each finds them all.
    fn lines<'l>(&'l self, problems: &[&'l Problem]) -> BTreeMap<(&'l str, u32), Option<&'l str>> {
        let place = |problem: &&'l Problem| Some((problem.file.as_str(), problem.place?.line));
        let mut found: BTreeMap<(&str, u32), Option<&str>> =
            problems.iter().filter_map(place).map(|key| (key, None)).collect();
        for file in &self.files {
            let name = file.name.as_str();
            let Some((&(_, last), _)) = found.range((name, 0)..=(name, u32::MAX)).next_back()
            else {
                continue;
            };
            for (number, line) in (1..=last).zip(problem::lines(&file.text)) {
                if let Some(wanted) = found.get_mut(&(name, number)) {
                    wanted.get_or_insert(line);
                }
            }
        }
        found
    }

    /// All errors that are listed, in full, and how many are not.
    pub fn render_errors(&self) -> String {
        let errors = self.problems.iter().filter(|problem| problem.is_error());
        let omitted = Omitted { warnings: 0, ..self.omitted }.summary();
        self.render(errors) + &omitted.map(|summary| summary + "\n").unwrap_or_default()
    }
}

impl RuleSet {
    /// Compiles files, and lists their problems, up to the limit that the options set. The set is of
    /// use only where no problem is an error. Counts are carried over from `previous`.
    pub fn compile(
        files: &[RuleFile],
        options: &Options,
        previous: Option<&RuleSet>,
    ) -> (RuleSet, Vec<Problem>) {
        let mut problems = Problems::new(options.max_problems);
        let set = RuleSet::compile_into(files, options, previous, &mut problems);
        (set, problems.into_parts().0)
    }

    fn compile_into(
        files: &[RuleFile],
        options: &Options,
        previous: Option<&RuleSet>,
        problems: &mut Problems,
    ) -> RuleSet {
        let stats: HashMap<&str, Arc<Stats>> = previous
            .iter()
            .flat_map(|set| &set.rules)
            .map(|rule| (&*rule.name, rule.stats.clone()))
            .collect();
        let mut set = RuleSet::default();
        // Where each domain is named first.
        let mut domains: HashMap<String, Origin> = HashMap::new();
        for file in files {
            problems.start_file();
            let node = match yaml::parse(&file.text) {
                Ok(node) => node,
                Err(broken) => {
                    problems.push(yaml_help::problem(&file.name, &file.text, broken));
                    continue;
                }
            };
            let mut reader = read::Reader {
                file: file.name.as_str().into(),
                problems,
                budget: read::Budget::of(file.text.len()),
                rules: &mut set.rules,
                stats: &stats,
                max_log_bytes: options.max_log_bytes,
                together: false,
            };
            let Some(root) = reader.root(node.as_ref()) else { continue };
            let first = domains.get(&root.domain);
            let known = first.is_some();
            if let Some(first) = first.filter(|_| !options.merge_domains && !root.domain.is_empty())
            {
                let domain = &root.domain;
                let message = format!("duplicate domain '{domain}' in config file");
                let help = "another file has this domain: rename one, or merge domains \
                            (setting rules.merge_domains, MERGE_DOMAIN_CONFIG)";
                reader.duplicate(root.domain_place, message, domain, first.clone(), help);
            }
            let domain = set.domains.entry(root.domain.as_str().into()).or_default();
            if known && options.merge_domains && domain.together != root.together {
                let message = "config error, `charge` differs from that of this domain elsewhere";
                let help = "write the same `charge` in every file of the domain";
                reader.error(root.domain_place, message, &root.domain, help);
            }
            domain.together = root.together;
            domain.on_store_failure = root.on_store_failure.or(domain.on_store_failure);
            // A second file of a domain that may not be merged is read into a tree of its own.
            let mut apart = matcher::Node::default();
            let tree = if known && !options.merge_domains { &mut apart } else { &mut domain.root };
            reader.descriptors(&root, tree);
            if !known {
                let origin = Origin { file: file.name.as_str().into(), place: root.domain_place };
                domains.insert(root.domain, origin);
            }
            problems.sort_file();
        }
        set
    }

    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// How many domains there are.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// All rules, in the order of the files.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(AsRef::as_ref)
    }

    /// Nodes with at least `least` wildcards, which are tried one by one: their name and how many.
    pub fn wildcards(&self, least: usize) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        let mut open: Vec<(String, &matcher::Node)> =
            self.domains.iter().map(|(name, domain)| (name.to_string(), &domain.root)).collect();
        while let Some((name, node)) = open.pop() {
            open.extend(node.children().map(|(text, below)| (format!("{name}.{text}"), below)));
            if node.wildcards() >= least {
                found.push((name, node.wildcards()));
            }
        }
        found.sort();
        found
    }

    /// A line for each rule, as the reference prints what it loaded.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        for rule in self.rules() {
            let limit = rule.plan.as_ref().and_then(|plan| plan.limits().first());
            let unit = limit.and_then(|limit| limit.unit).map_or("unknown", |unit| unit.name());
            let _ = write!(
                out,
                "{}: unit={} requests_per_unit={}, shadow_mode: {}, quota_mode: {}",
                rule.name,
                unit.to_ascii_uppercase(),
                limit.map_or(0, |limit| limit.requests_per_unit),
                rule.shadow_mode,
                rule.quota_mode,
            );
            out.push('\n');
        }
        out
    }
}

impl Domain {
    /// The rule that the whole of `entries` matches, if any.
    pub fn find(&self, entries: &[Entry<'_>]) -> Option<Found<'_>> {
        self.root.find(entries)
    }
}

impl Domain {
    /// The entries of a descriptor's key: where a wildcard shares its threshold, with the pattern
    /// for a value.
    pub fn shared_entries<'a>(&'a self, entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
        self.root.shared_entries(entries)
    }
}

impl Rule {
    pub fn domain(&self) -> &str {
        &self.name[..self.domain_length]
    }

    /// The name without the domain.
    pub fn path(&self) -> &str {
        self.name.get(self.domain_length + 1..).unwrap_or_default()
    }

    /// Keys and values from the root to the rule; a value is empty where the rule names none.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.entries.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The name of one of its limits; empty for none.
    pub fn limit_name(&self, limit: u8) -> &str {
        let plan = self.plan.as_ref();
        plan.and_then(|plan| plan.limits().get(usize::from(limit))).map_or("", |limit| &limit.name)
    }

    /// Whether the rule, or one of its limits, goes by one of these names.
    pub fn is_named_by(&self, names: &[&str]) -> bool {
        let limits = self.plan.iter().flat_map(|plan| plan.limits()).map(|limit| &limit.name);
        limits.chain([&self.limit_name]).any(|name| names.contains(&&**name))
    }
}
