//! Tags that all statistics have.

/// Tags of all statistics, as EXTRA_TAGS names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// The tags, sorted by name.
    tags: Vec<(String, String)>,
    suffix: String,
}

impl Tags {
    /// Reads tags as `name:value`; a tag without a colon has an empty value.
    pub fn new(tags: &[impl AsRef<str>]) -> Tags {
        let parts = tags.iter().map(|tag| {
            let (name, value) = tag.as_ref().split_once(':').unwrap_or((tag.as_ref(), ""));
            (name.to_owned(), value.to_owned())
        });
        let mut tags: Vec<_> = parts.collect();
        tags.sort();
        let serialized = tags.iter().map(|(name, value)| {
            let value = value.replace(['.', ':', '|'], "_");
            format!(".__{name}={value}")
        });
        let suffix = serialized.collect();
        Tags { tags, suffix }
    }

    /// The end of all names: `.__name=value` for each tag.
    pub fn suffix(&self) -> &str {
        &self.suffix
    }

    /// The names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tags.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
