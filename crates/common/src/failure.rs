//! The policy for requests when the store fails.

#![warn(missing_docs)]

/// A policy, of the whole service or of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Return an error, so that the client decides.
    #[default]
    Error,
    /// Let the request pass.
    Allow,
    /// Deny the request.
    Deny,
    /// Enforce this replica's share of the limits, in memory.
    Local,
}

impl OnStoreFailure {
    /// All policies.
    pub const ALL: [OnStoreFailure; 4] =
        [OnStoreFailure::Error, OnStoreFailure::Allow, OnStoreFailure::Deny, OnStoreFailure::Local];

    /// Returns the word for it in rule files and settings.
    pub const fn name(self) -> &'static str {
        match self {
            OnStoreFailure::Error => "error",
            OnStoreFailure::Allow => "allow",
            OnStoreFailure::Deny => "deny",
            OnStoreFailure::Local => "local",
        }
    }
}
