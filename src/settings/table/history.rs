//! `history`: what was counted and what has happened in the last hour.

use super::group;

group! {
    /// The history.
    HistorySettings "history" {
        /// Whether what was counted and what has happened in the last hour is kept, for the page and
        /// /v1/history. It takes up to 4 MiB.
        enabled: bool = "true";
    }
}
