//! The syntax of rule files: parses YAML into a tree of nodes with positions, and describes errors and warnings.

pub(crate) mod document;
pub(crate) mod position;
pub(crate) mod problem;
pub mod tree;
pub mod values;
pub mod yaml;
