//! The forms in which rules arrive: files and xDS resources.

use std::sync::Arc;

use super::embedded_list::EmbeddedList;
use super::problem::Problem;
use super::tree::Node;

/// A file or a resource with the rules of one domain.
pub trait Document: Sized {
    /// The name in problems.
    fn name(&self) -> &str;

    /// The length of its text, or of a YAML text with the same content. It bounds the memory for its
    /// rules.
    fn text_bytes(&self) -> usize;

    /// Builds its tree; none for an empty document. `warn` is called with warnings about its form.
    ///
    /// # Errors
    /// The document cannot be read.
    fn tree(&self, warn: &mut dyn FnMut(Problem)) -> Result<Option<Node<'_>>, Problem>;

    /// Builds the trees of all documents that are read: one, but of rules that weir has written.
    ///
    /// # Errors
    /// A document cannot be read.
    fn trees(&self, warn: &mut dyn FnMut(Problem)) -> Result<Vec<Option<Node<'_>>>, Problem> {
        self.tree(warn).map(|tree| vec![tree])
    }

    /// The lists beside it, if it is in a manifest; none if they are files.
    fn lists(&self) -> Option<Arc<[EmbeddedList]>> {
        None
    }

    /// The text that positions refer to, if they are lines and columns.
    fn source_text(&self) -> Option<&str>;

    /// Returns listed problems with their positions: `file:line:column`, or the resource and the
    /// path of the field.
    fn locate<'l>(files: &'l [Self], problems: &[&'l Problem]) -> Vec<(String, &'l Problem)>;
}
