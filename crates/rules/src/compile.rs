//! Compiles rule files, or the `RateLimitConfig` messages of xDS, to one rule set, and lists their errors and warnings.
//! The service does so at each load, commands such as `weir check` once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lint::{self, Replaced};
use crate::matcher::{MatcherNode, RuleSet};
use crate::model::stats::RuleSeries;
use crate::options::RuleOptions;
use crate::overlay::patcher::OverlayReport;
use crate::overlay::{Overlay, OverlayError};
use crate::read::reader::{Previous, Reader, ReplacedName};
use crate::source::lists::{ListFile, ListReader, Lists};
use crate::source::{RuleFile, Selection};
use crate::syntax::document::Document;
use crate::syntax::position::Origin;
use crate::syntax::problem::{Omitted, Problem, Problems, Severity};
use weir_limit::{Calendar, Unit};

impl RuleSet {
    /// Compiles rule files or messages, and returns their errors and warnings, up to the maximum of the options. If one
    /// is an error, the set must not be used. Counters of metrics are carried over; the store has the counts of limits.
    pub fn compile(
        documents: &[impl Document],
        options: &RuleOptions,
        previous: Option<&RuleSet>,
    ) -> (RuleSet, Vec<Problem>) {
        let mut problems = Problems::new(options.max_problems);
        let compiled = RuleSet::compile_into(documents, options, previous, &mut problems);
        (compiled.set, problems.into_parts().0)
    }

    pub(crate) fn compile_into(
        documents: &[impl Document],
        options: &RuleOptions,
        previous: Option<&RuleSet>,
        problems: &mut Problems,
    ) -> Compiled {
        let mut patcher = options.overlay.as_ref().map(|overlay| overlay.patcher(options));
        let rules = previous.iter().flat_map(|set| set.rules());
        let known = Previous {
            rules: rules.map(|rule| (&*rule.name, rule)).collect(),
            series: previous.map(|set| set.series.clone()).unwrap_or_default(),
        };
        // Every system has the zone UTC, and a month is a unit of the calendar.
        let month = || Calendar::new(Unit::Month, "UTC").ok().map(Arc::new);
        let calendar_month = options.calendar_months.then(month).flatten();
        let series = known.series.clone();
        let mut set = RuleSet { calendar_month, series, ..RuleSet::default() };
        // The first position of each domain, and its `charge` there.
        let mut domains: HashMap<String, (Origin, bool)> = HashMap::new();
        let mut replaced = Vec::new();
        let mut lists = ListReader::new(options.lists.clone(), options.watched_lists.clone());
        for document in documents {
            problems.start_file();
            lists.embedded = document.lists();
            let nodes = match document.trees(&mut |warning| problems.push(warning)) {
                Ok(nodes) => nodes,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            let mut reader = Reader::new(document, options, &known, problems);
            (reader.patcher, reader.lists) = (patcher.as_mut(), Some(&mut lists));
            for node in &nodes {
                let Some(root) = reader.root(node.as_ref()) else { continue };
                let first = domains.get(&root.domain);
                let known = first.is_some();
                if let Some((first, _)) = first
                    && !options.merge_domains
                    && !root.domain.is_empty()
                {
                    let message = format!("duplicate domain '{}' in config file", root.domain);
                    let help = "another file has this domain: rename one, or merge domains (setting \
                                rules.merge_domains, MERGE_DOMAIN_CONFIG; in commands --merge-domains)";
                    let problem = reader.problem(root.domain_position, message, &root.domain, help);
                    reader.problems.push(problem.with_first(first.clone()));
                }
                let domain = set.domains.entry(root.domain.as_str().into()).or_default();
                if domain.override_series.is_none() {
                    let known = previous.and_then(|set| set.domain(&root.domain));
                    let known = known.and_then(|domain| domain.override_series.clone());
                    let new = || Arc::new(RuleSeries::new(set.series.clone()));
                    domain.override_series = Some(known.unwrap_or_else(new));
                }
                if options.merge_domains
                    && first.is_some_and(|(_, together)| *together != root.together)
                {
                    let message =
                        "config error, `charge` differs from that of this domain elsewhere";
                    let help = "write the same `charge` in every file of the domain";
                    reader.error(root.domain_position, message, &root.domain, help);
                }
                domain.replace_dots = options.replace_dots;
                domain.together = root.together;
                domain.on_store_failure = root.on_store_failure.or(domain.on_store_failure);
                if let Some(patcher) = &mut reader.patcher {
                    patcher.start_domain(&root.domain, domain);
                }
                // The rules have to fit the `charge` that a patch sets, too.
                reader.together = domain.together;
                // A repeated domain is read for its problems, into a tree that is dropped.
                let mut dropped = MatcherNode::default();
                let tree =
                    if known && !options.merge_domains { &mut dropped } else { &mut domain.root };
                reader.descriptors(&root, tree);
                for ReplacedName { name, position } in reader.replaced.drain(..) {
                    let origin = Origin { file: reader.file.clone(), position };
                    replaced.push(Replaced { domain: root.domain.as_str().into(), name, origin });
                }
                if !known {
                    let origin =
                        Origin { file: document.name().into(), position: root.domain_position };
                    domains.insert(root.domain, (origin, root.together));
                }
            }
            set.rules.append(&mut reader.rules);
            problems.sort_file();
        }
        if options.lint && !problems.has_errors() {
            lint::lint(&set, &replaced, problems);
            problems.sort_by_file(documents.iter().map(Document::name));
        }
        if !problems.has_errors() {
            set.series.set_max(options.max_series.saturating_sub(set.rules.len()));
        }
        let patcher = patcher.filter(|_| !problems.has_errors());
        let report = patcher.map(|patcher| patcher.finish(options.max_problems));
        Compiled { set, overlay: report.unwrap_or_default(), lists: lists.files }
    }
}

pub(crate) struct Compiled {
    pub set: RuleSet,
    pub overlay: OverlayReport,
    pub lists: Vec<ListFile>,
}

/// The result of compiling files, or resources of a management server.
#[derive(Debug)]
pub struct Loaded<D = RuleFile> {
    /// Must not be used if a problem is an error.
    pub rules: RuleSet,
    /// The errors and warnings that are listed.
    pub problems: Vec<Problem>,
    /// The number of problems that are not listed.
    pub omitted: Omitted,
    /// What was compiled.
    pub files: Vec<D>,
    /// The outcomes of the patches of the overlay; empty if a problem is an error.
    pub overlay: OverlayReport,
    /// The lists that the rules name.
    pub lists: Vec<ListFile>,
}

impl<D: Document> Loaded<D> {
    /// Compiles files, as the overlay of the options patches them, and adds their problems to those found
    /// before. Counters are carried over from `previous`.
    pub fn compile(
        files: Vec<D>,
        mut problems: Problems,
        options: &RuleOptions,
        previous: Option<&RuleSet>,
    ) -> Loaded<D> {
        let compiled = RuleSet::compile_into(&files, options, previous, &mut problems);
        let Compiled { set: rules, overlay, lists } = compiled;
        let (problems, omitted) = problems.into_parts();
        Loaded { rules, problems, omitted, files, overlay, lists }
    }

    /// Returns whether no problem is an error.
    pub fn is_good(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    /// Whether a list may be half written.
    pub fn has_unsettled_lists(&self) -> bool {
        self.lists.iter().any(|list| list.hash.is_none())
    }

    /// The number of problems of a severity, listed or not.
    pub fn count(&self, severity: Severity) -> usize {
        self.listed(severity).count() + self.omitted.of(severity)
    }

    /// The listed problems of a severity.
    pub fn listed(&self, severity: Severity) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.severity == severity)
    }

    /// Renders problems in full, each with the line that it is in.
    pub fn render<'p>(&self, problems: impl Iterator<Item = &'p Problem>) -> String {
        D::render(&self.files, &problems.collect::<Vec<_>>())
    }

    /// Renders the listed errors in full, and the number of the others.
    pub fn render_errors(&self) -> String {
        let errors = self.listed(Severity::Error);
        self.render(errors) + &Omitted { warnings: 0, ..self.omitted }.line()
    }
}

impl Loaded {
    /// Reads and compiles the selected files, and the lists beside them. Counters are carried over from `previous`.
    pub fn read(selection: &Selection, options: &RuleOptions, previous: Option<&RuleSet>) -> Self {
        let (files, found) = selection.read();
        let mut problems = Problems::new(options.max_problems);
        problems.of_files(found);
        Loaded::compile(files, problems, &with_lists(options), previous)
    }

    /// Reads and compiles the selected files as the overlay of other files patches them, and adds its problems.
    pub fn read_patched(selection: &Selection, overlay: &Selection, options: &RuleOptions) -> Self {
        let overlay = Overlay::read(overlay, options);
        let (files, found) = selection.read();
        let mut problems = Problems::new(options.max_problems);
        problems.of_files(found);
        Loaded::compile_with(files, problems, overlay, &with_lists(options))
    }
}

fn with_lists(options: &RuleOptions) -> RuleOptions {
    RuleOptions { lists: Lists::BesideRules, ..options.clone() }
}

impl<D: Document + From<RuleFile>> Loaded<D> {
    /// Compiles files as an overlay patches them, and adds its files and the problems with it.
    pub fn compile_with(
        files: Vec<D>,
        problems: Problems,
        overlay: Result<Overlay, OverlayError>,
        options: &RuleOptions,
    ) -> Loaded<D> {
        let options = RuleOptions { overlay: overlay.as_ref().ok().cloned(), ..options.clone() };
        let mut loaded = Loaded::compile(files, problems, &options, None);
        let omitted = match overlay {
            Ok(overlay) => {
                loaded.problems.extend(loaded.overlay.problems.iter().cloned());
                loaded.files.extend(overlay.files.iter().cloned().map(D::from));
                loaded.overlay.omitted
            }
            Err(error) => {
                loaded.problems.extend(error.problems);
                loaded.files.extend(error.files.into_iter().map(D::from));
                error.omitted
            }
        };
        loaded.omitted.errors += omitted.errors;
        loaded.omitted.warnings += omitted.warnings;
        loaded
    }
}
