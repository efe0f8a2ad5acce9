//! The types of rules: the keys of rule files, the messages of xDS, and compiled rules with their counters.

pub(crate) mod key;
pub(crate) mod keys;
pub(crate) mod prefix_table;
pub mod proto;
pub(crate) mod reserve;
pub(crate) mod rule;
pub(crate) mod stats;
pub(crate) mod value_set;
