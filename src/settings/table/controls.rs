//! `controls`: what operators decide at run time.

use std::path::PathBuf;
use std::time::Duration;

use super::group;
use crate::settings::format::Int;

group! {
    /// Blocks, allowances and limits that operators set at run time.
    ControlsSettings "controls" {
        /// File that keeps controls over a restart. Without it they end with the process, unless
        /// counters are in Redis: then Redis has them, for all replicas. Its copy is beside
        /// it, so its directory must be writable.
        file: Option<PathBuf> = "";
        /// The interval at which changes of other replicas are read from Redis.
        poll: Duration = "250ms";
        /// The most controls that can be put here. Give all replicas the same number.
        max: Int<usize, 0, 10_000> = "10_000";
    }
}
