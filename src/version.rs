//! The version of the program, and the commit that it was built from.

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first 12 digits of the git commit; `unknown` if `build.rs` could not find it.
pub const COMMIT: &str = env!("WEIR_COMMIT");

/// Version and commit, for `weir --version`.
pub const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("WEIR_COMMIT"), ")");
