//! What the targets share.

pub mod bench;
pub mod made;
pub mod ruled;
pub mod wire;
