//! A list of values in a manifest, beside the rules that name it.

use super::source_map::SourceMap;

/// A list that is an entry of the ConfigMap of a rule file.
#[derive(Clone, Debug)]
pub struct EmbeddedList {
    pub(crate) name: String,
    pub(crate) text: String,
    /// Where its lines are in the manifest.
    pub(crate) map: SourceMap,
}
