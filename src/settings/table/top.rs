//! `top`: the lists of top keys.

use super::group;
use crate::settings::format::Int;

group! {
    /// Top keys.
    TopSettings "top" {
        /// Keys in each of the lists of top keys (most hits, most denials, what shadow modes admit, near a
        /// limit), on each thread; 0: there are no lists.
        entries: Int<usize, 0, 65_536> = "1_024";
        /// Descriptor keys whose values are shown as hashes in these lists and in changes, such as
        /// api_key.
        redact: Vec<String> = "";
        /// Whether replicas share their lists in Redis, with one command a second each, so that each shows those of
        /// all.
        share: bool = "false";
    }
}
