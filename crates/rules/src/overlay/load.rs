//! Loads overlay files (patches of rules): validates them, and reads the patches again whenever rules are compiled.

use super::patch::Patch;
use super::patcher::Patcher;
use super::{Overlay, OverlayError};
use crate::options::RuleOptions;
use crate::read::reader::{Previous, Reader};
use crate::source::{FileKind, RuleFile, Selection};
use crate::syntax::document::Document;
use crate::syntax::problem::{Problem, Problems};

impl Overlay {
    /// Validates overlay files. `found` are the problems with reading them from disk.
    ///
    /// # Errors
    /// A file is invalid.
    pub fn new(
        files: Vec<RuleFile>,
        found: Vec<Problem>,
        options: &RuleOptions,
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
    pub fn read(selection: &Selection, options: &RuleOptions) -> Result<Overlay, OverlayError> {
        let (files, found) = selection.read_kind(FileKind::Overlay);
        Overlay::new(files, found, options)
    }

    pub(crate) fn patcher(&self, options: &RuleOptions) -> Patcher {
        // The files were valid before, and their warnings are known.
        let mut patcher = Patcher::new(parse(&self.files, options, &mut Problems::new(1)));
        patcher.failures.warnings = self.warnings.to_vec();
        patcher.failures.omitted = self.omitted;
        patcher
    }
}

fn parse(files: &[RuleFile], options: &RuleOptions, problems: &mut Problems) -> Vec<Patch> {
    // What months are is known where the rules are. The reference has no overlays.
    let options = RuleOptions {
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
