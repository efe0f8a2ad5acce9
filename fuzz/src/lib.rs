//! Code shared by the targets.

pub mod bench;
pub mod made;
pub mod ruled;
pub mod wire;
