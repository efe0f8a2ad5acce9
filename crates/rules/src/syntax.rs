//! How rules are written: documents, their trees with positions, and the problems with them.

pub(crate) mod document;
pub(crate) mod position;
pub(crate) mod problem;
pub mod tree;
pub mod values;
pub mod yaml;
