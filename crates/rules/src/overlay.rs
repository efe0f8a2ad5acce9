//! The overlay: patches of rules that were loaded from files or from a management server.
//!
//! Overlay files are validated as a whole, without rules. When rules are compiled, the reader asks the [`Patcher`] for
//! the patches that match a descriptor, and reads the descriptor again with its keys as the patches change them. So one
//! reader validates all rules. A patch applies to a rule whole, or not at all and is reported.

pub(super) mod patch;
pub(super) mod patcher;

pub use patcher::OverlayReport;

use std::sync::Arc;

use self::patch::Patch;
use self::patcher::Patcher;
use crate::Options;
use crate::read::{Previous, Reader};
use crate::source::{FileKind, RuleFile, Selection};
use crate::syntax::document::{Document, render};
use crate::syntax::problem::{Omitted, Problem, Problems};

/// Valid overlay files.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    pub(super) files: Arc<[RuleFile]>,
    /// The number of patches.
    pub patches: usize,
    /// The warnings about the files, and the number of those that are not listed.
    warnings: Arc<[Problem]>,
    omitted: Omitted,
}

/// Why overlay files are rejected.
#[derive(Debug)]
pub struct OverlayError {
    /// The errors and warnings that are listed.
    pub problems: Vec<Problem>,
    /// The number of problems that are not listed.
    pub omitted: Omitted,
    pub(super) files: Vec<RuleFile>,
}

impl Overlay {
    /// Validates overlay files. `found` are the problems found while reading them.
    ///
    /// # Errors
    /// A file is invalid.
    pub fn new(
        files: Vec<RuleFile>,
        found: Vec<Problem>,
        options: &Options,
    ) -> Result<Overlay, OverlayError> {
        let mut problems = Problems::new(options.max_problems);
        problems.of_files(found);
        let patches = parse(&files, options, &mut problems).len();
        let has_errors = problems.has_errors();
        let (problems, omitted) = problems.into_parts();
        match has_errors {
            true => Err(OverlayError { problems, omitted, files }),
            false => {
                Ok(Overlay { files: files.into(), patches, warnings: problems.into(), omitted })
            }
        }
    }

    /// Reads and validates the selected files.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub fn read(selection: &Selection, options: &Options) -> Result<Overlay, OverlayError> {
        let (files, found) = selection.read_kind(FileKind::Overlay);
        Overlay::new(files, found, options)
    }

    /// Returns the names of the files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.name.as_str())
    }

    /// Renders problems with the overlay in full, each with the line that it is in.
    pub fn render(&self, report: &OverlayReport) -> String {
        render_all(&self.files, &report.problems, report.omitted)
    }

    pub(super) fn patcher(&self, options: &Options) -> Patcher {
        // The files were valid before, and their warnings are known.
        let mut patcher = Patcher::new(parse(&self.files, options, &mut Problems::new(1)));
        patcher.failures.warnings = self.warnings.to_vec();
        patcher.failures.omitted = self.omitted;
        patcher
    }
}

impl OverlayError {
    /// Renders all problems in full, and the number of those that are not listed.
    pub fn render(&self) -> String {
        render_all(&self.files, &self.problems, self.omitted)
    }
}

fn render_all(files: &[RuleFile], problems: &[Problem], omitted: Omitted) -> String {
    render(files, &problems.iter().collect::<Vec<_>>()) + &omitted.line()
}

fn parse(files: &[RuleFile], options: &Options, problems: &mut Problems) -> Vec<Patch> {
    // What months are is known where the rules are. The reference has no overlays.
    let options = Options {
        calendar_months: false,
        lint: false,
        rejects_ignored_shadow_mode: true,
        ..options.clone()
    };
    let (mut patches, previous) = (Vec::new(), Previous::default());
    for file in files {
        problems.start_file();
        match file.tree(&mut |warning| problems.push(warning)) {
            Ok(root) => {
                let mut reader = Reader::new(file, &options, &previous, problems);
                reader.overlay(root.as_ref(), &mut patches);
            }
            Err(problem) => problems.push(problem),
        }
        problems.sort_file();
    }
    patches
}
