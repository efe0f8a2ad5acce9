//! What all replicas share beside the states of keys: a small table, and a text of each replica.
//!
//! Futures resolve within a second or so.

use std::fmt::Debug;

use futures_util::future::BoxFuture;

use super::StoreError;
use weir_limit::Micros;

/// Why the table cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store does not permit it to this user")]
    NotPermitted,
}

/// A table of named rows, each with the time at which it was written. Of two rows of one name the newer wins.
pub trait SharedTable: Debug + Send + Sync {
    /// Resolves when the server of the table has answered, or could not be reached.
    fn tried(&self) -> BoxFuture<'_, ()>;

    /// Reads the version of the table, and the time of the store.
    fn version(&self) -> BoxFuture<'_, Result<TableVersion, TableError>>;

    /// Reads all rows: their names and texts. Of what is written meanwhile, it may lack some.
    fn rows(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, TableError>>;

    /// Writes rows that are newer than those of the same name, and returns the versions of the table before and after.
    fn write<'a>(
        &'a self,
        changes: &'a [RowChange],
    ) -> BoxFuture<'a, Result<TableWritten, TableError>>;
}

/// A version of a table. Equal versions have equal rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableVersion {
    /// Empty before the first row.
    pub version: String,
    /// The time of the store.
    pub time: Micros,
}

/// A row to write or to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    pub name: String,
    /// When the row was written; below 2^53.
    pub at: Micros,
    /// The text to write; none removes the row that was written at `at`, if it is still there.
    pub text: Option<String>,
}

/// The versions of a table before and after it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableWritten {
    pub before: String,
    pub after: String,
}

/// Why the texts of replicas cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaTextError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store does not permit it, and will not.
    #[error("{0}")]
    Refused(String),
}

/// The largest text.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// Texts of replicas, and a secret that these replicas share.
pub trait ReplicaTexts: Debug + Send + Sync {
    /// Resolves when the server of the texts has answered, or could not be reached.
    fn tried(&self) -> BoxFuture<'_, ()>;

    /// Writes the text of this replica, of up to [`MAX_TEXT_BYTES`], for a short time. It was made with `secret`, which
    /// becomes that of all replicas if they have none. Returns the secret of all replicas: if it is another one,
    /// nothing is written.
    fn publish<'a>(
        &'a self,
        secret: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<String, ReplicaTextError>>;

    /// Returns the texts of the other replicas, up to a bound. They may be anything: others can write to the store.
    fn others(&self) -> BoxFuture<'_, Result<Vec<String>, ReplicaTextError>>;
}
