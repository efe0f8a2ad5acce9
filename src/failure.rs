//! What to answer when the store fails.

/// A policy: the whole service's, or a domain's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// The request gets an error, and whoever asks decides.
    #[default]
    Error,
    Allow,
    Deny,
    /// Limit in memory, by this replica's share.
    Local,
}

impl OnStoreFailure {
    pub const ALL: [OnStoreFailure; 4] =
        [OnStoreFailure::Error, OnStoreFailure::Allow, OnStoreFailure::Deny, OnStoreFailure::Local];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            OnStoreFailure::Error => "error",
            OnStoreFailure::Allow => "allow",
            OnStoreFailure::Deny => "deny",
            OnStoreFailure::Local => "local",
        }
    }
}
