//! The policy for requests while the store, such as Redis, fails. Settings and rule files choose it.

#![warn(missing_docs)]

crate::named_enum! {
    /// A policy, of the whole service or of a domain, and the word for it in rule files and settings.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum OnStoreFailure, name {
        /// Return an error, so that the client decides.
        #[default]
        Error = "error",
        /// Let the request pass.
        Allow = "allow",
        /// Deny the request.
        Deny = "deny",
        /// Enforce this replica's share of the limits, in memory.
        Local = "local",
    }
}
