//! `top`: the lists of top keys.

use super::group;

group! {
    /// Top keys.
    TopSettings "top" {
        /// Descriptor keys whose values are shown as hashes in the lists of top keys and in changes, such
        /// as api_key.
        redact: Vec<String> = "";
        /// Whether replicas share their lists in Redis, with one command a second each, so that each shows those of
        /// all.
        share: bool = "false";
    }
}
