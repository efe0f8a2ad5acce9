//! `controls`: what operators decide at run time.

use std::path::PathBuf;

use super::group;

group! {
    /// Blocks, allowances and limits that operators set at run time.
    ControlsSettings "controls" {
        /// File that keeps controls over a restart. Without it they end with the process, unless
        /// counters are in Redis: then Redis has them, for all replicas. Its copy is beside
        /// it, so its directory must be writable.
        file: Option<PathBuf> = "";
    }
}
