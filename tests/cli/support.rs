//! What the tests share.

#[path = "../support/files.rs"]
pub mod files;
#[path = "../support/markdown.rs"]
pub mod markdown;
pub mod program;
#[path = "../support/schemas.rs"]
pub mod schemas;
#[path = "../support/tools.rs"]
pub mod tools;
