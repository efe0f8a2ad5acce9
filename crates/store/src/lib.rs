//! The stores, which keep the counts of keys: the trait [`Store`], and stores in memory, on disk and around another
//! one. A store charges all keys of a request at once. The Redis store is in the package `weir-redis`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod charge;
#[cfg(any(test, feature = "testsuite"))]
pub mod conformance;
pub mod disk;
mod error;
pub mod guard;
mod key_text;
pub mod local;
pub mod memory;
mod operations;
pub mod recording;
pub mod shared;
mod states;
mod store;

pub use self::charge::{Answer, Answers, Batch, BatchDenials, Charge, Key, Role, reserved};
pub use self::error::StoreError;
pub use self::key_text::{id_text, key_bytes, key_text};
pub use self::operations::{
    BackendStatus, FailureStatus, Late, Operations, SavedStatus, StoreStatus,
};
pub use self::shared::{RowChange, SharedTable, TableError, TableRow, TableVersion, TableWritten};
pub use self::states::{Grant, StateKey, States};
pub use self::store::Store;
pub use weir_common::entry::Entry;
pub use weir_common::failure::OnStoreFailure;
