//! What the tests share.

#[path = "../support/console.rs"]
pub mod console;
#[path = "../support/files.rs"]
pub mod files;
#[path = "../support/markdown.rs"]
pub mod markdown;
#[path = "../support/tools.rs"]
pub mod tools;
#[path = "../support/yaml.rs"]
pub mod yaml;
