//! A list of values in a manifest, beside the rules that name it.

/// A list that is an entry of the ConfigMap of a rule file.
#[derive(Clone, Debug)]
pub struct EmbeddedList {
    pub(crate) name: String,
    /// The name in problems.
    pub(crate) path: String,
    pub(crate) text: String,
}
