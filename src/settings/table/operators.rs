//! `controls` and `top`: what operators decide and see at run time.

use std::path::PathBuf;

use super::group;

group! {
    /// Blocks, allowances and limits that operators set at run time.
    ControlsSettings {
        /// File that keeps controls over a restart. Without it they end with the process, unless
        /// counters are in Redis: then Redis has them, for all replicas. Its copy is beside
        /// it, so its directory must be writable.
        file: Option<PathBuf> = "";
    }
}

group! {
    /// Top keys.
    TopSettings {
        /// Descriptor keys whose values are shown as hashes in the lists of top keys and in changes, such
        /// as api_key.
        redact: Vec<String> = "";
        /// Whether replicas share their lists in Redis, with one command a second each, so that each shows those of
        /// all.
        share: bool = "false";
    }
}
