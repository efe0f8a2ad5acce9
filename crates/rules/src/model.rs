//! What rules are: their keys, and the rules that they become.

pub(crate) mod key;
pub(crate) mod keys;
pub(crate) mod prefix_table;
pub mod proto;
pub(crate) mod reserve;
pub(crate) mod rule;
pub(crate) mod stats;
pub(crate) mod value_set;
