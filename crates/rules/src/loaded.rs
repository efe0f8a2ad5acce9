//! Rule files that were read and compiled, with their problems.

#![warn(missing_docs)]

use crate::compile::Compiled;
use crate::overlay::{Overlay, OverlayError, OverlayReport};
use crate::source::lists::{ListFile, Lists};
use crate::source::{RuleFile, Selection};
use crate::syntax::document::Document;
use crate::syntax::problem::{Problem, Severity};
use crate::syntax::problems::{Omitted, Problems};
use crate::{Options, RuleSet};

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
        options: &Options,
        previous: Option<&RuleSet>,
    ) -> Loaded<D> {
        let Compiled { set: rules, overlay, lists } =
            RuleSet::compile_into(&files, options, previous, &mut problems);
        let (problems, omitted) = problems.into_parts();
        Loaded { rules, problems, omitted, files, overlay, lists }
    }

    /// Whether no problem is an error.
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
    /// Reads and compiles the selected files, and the lists beside them. Counters are carried over from
    /// `previous`.
    pub fn read(selection: &Selection, options: &Options, previous: Option<&RuleSet>) -> Loaded {
        let (files, found) = selection.read();
        let mut problems = Problems::new(options.max_problems);
        problems.of_files(found);
        Loaded::compile(files, problems, &with_lists(options), previous)
    }

    /// Reads and compiles the selected files as the overlay of other files patches them. The problems
    /// with the overlay are among the others.
    pub fn read_patched(selection: &Selection, overlay: &Selection, options: &Options) -> Loaded {
        let overlay = Overlay::read(overlay, options);
        let (files, found) = selection.read();
        let mut problems = Problems::new(options.max_problems);
        problems.of_files(found);
        Loaded::compile_with(files, problems, overlay, &with_lists(options))
    }
}

/// Returns options to compile files with the lists beside them.
fn with_lists(options: &Options) -> Options {
    Options { lists: Lists::BesideRules, ..options.clone() }
}

impl<D: Document + From<RuleFile>> Loaded<D> {
    /// Compiles files as an overlay patches them, and adds its files and the problems with it.
    pub fn compile_with(
        files: Vec<D>,
        problems: Problems,
        overlay: Result<Overlay, OverlayError>,
        options: &Options,
    ) -> Loaded<D> {
        let options = Options { overlay: overlay.as_ref().ok().cloned(), ..options.clone() };
        let mut loaded = Loaded::compile(files, problems, &options, None);
        let omitted = match overlay {
            Ok(overlay) => {
                loaded.problems.extend(loaded.overlay.problems.iter().cloned());
                loaded.files.extend(overlay.into_files().iter().cloned().map(D::from));
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
