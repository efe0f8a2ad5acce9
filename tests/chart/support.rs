//! Helpers that other tests have too.

#![allow(dead_code, reason = "these tests use a part of them")]

#[path = "../support/certificates.rs"]
pub mod certificates;
#[path = "../support/files.rs"]
mod files;
#[path = "../e2e/support/http.rs"]
pub mod http;
#[path = "../e2e/support/management.rs"]
pub mod management;
#[path = "../support/markdown.rs"]
pub mod markdown;
#[path = "../e2e/support/program.rs"]
pub mod program;
#[path = "../support/redis.rs"]
pub mod redis;
#[path = "../support/tools.rs"]
pub mod tools;
#[path = "../support/yaml.rs"]
pub mod yaml;

pub use files::{read, root};
pub use redis::{PATIENCE, wait_for};
pub use tools::tool;
