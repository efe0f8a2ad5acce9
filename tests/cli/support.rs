//! What the tests share.

#[path = "../support/files.rs"]
pub mod files;
#[path = "../support/markdown.rs"]
pub mod markdown;
pub mod program;
