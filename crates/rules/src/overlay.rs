//! The overlay: files with patches, by which operators change rules that others write or a management server sends.
//!
//! Overlay files are validated first, without rules. When rules are compiled, their reader (`read`) asks `patcher` for
//! the patches that match a descriptor, and reads the descriptor again with the keys that the patches change. So one
//! reader validates all rules. A patch applies to a rule as a whole. If it does not fit, it is skipped and reported.

mod load;
pub(super) mod patch;
pub(super) mod patcher;

use std::sync::Arc;

use self::patcher::OverlayReport;
use crate::source::RuleFile;
use crate::syntax::document::render;
use crate::syntax::problem::{Omitted, Problem};

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
    /// Returns the names of the files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.name.as_str())
    }

    /// Renders problems with the overlay in full, each with the line that it is in.
    pub fn render(&self, report: &OverlayReport) -> String {
        render_all(&self.files, &report.problems, report.omitted)
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
