//! What all replicas share through Redis besides counts: a table, with the controls (blocks, allows, limits) that
//! operators set at run time, and a text of each replica, with its top keys.
//!
//! Futures resolve within a second or so.

use std::fmt::Debug;

use futures_util::future::BoxFuture;

use crate::error::StoreError;
use weir_limit::Micros;

/// Why the table cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The user may not use the keys or the commands of the table.
    #[error("the store does not permit it to this user")]
    NotPermitted,
}

/// A table of named rows, each with the time at which it was written. Of two rows of one name the newer wins.
pub trait SharedTable: Debug + Send + Sync {
    /// Resolves when the server of the table has answered, or could not be reached.
    fn tried(&self) -> BoxFuture<'_, ()>;

    /// Reads the version of the table, and the time of the store.
    fn version(&self) -> BoxFuture<'_, Result<TableVersion, TableError>>;

    /// Reads all rows. Of what is written meanwhile, it may lack some.
    fn rows(&self) -> BoxFuture<'_, Result<Vec<TableRow>, TableError>>;

    /// Writes all rows that are new, or later than those of the same name.
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

/// A row as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// The name of the row.
    pub name: String,
    /// When it was written.
    pub at: Micros,
    /// Its text.
    pub text: String,
}

/// A row to write or to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// The name of the row.
    pub name: String,
    /// When the row was written; below 2^53.
    pub at: Micros,
    /// Whether the change is made now. It replaces a later row, which a clock ahead of this one has written, and is
    /// written one microsecond after it.
    pub is_new: bool,
    /// The text to write; none removes the row that was written at `at`, if it is still there.
    pub text: Option<String>,
}

/// What a write of a table did, besides writing all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableWritten {
    /// Nothing else has changed.
    Alone {
        /// The version before.
        before: String,
        /// The version after.
        after: String,
    },
    /// The table has rows or times that this replica has not read, such as those of another one that wrote meanwhile.
    Unread {
        /// The version before.
        before: String,
    },
    /// The table lost its rows meanwhile, and some of those that were written.
    Emptied,
}

impl TableWritten {
    /// Returns what two calls did, one after the other.
    pub fn and_then(self, next: TableWritten) -> TableWritten {
        use TableWritten::{Alone, Emptied, Unread};
        match (self, next) {
            (Alone { before, after }, Alone { before: next, after: last }) if after == next => {
                Alone { before, after: last }
            }
            (Emptied, _) | (_, Emptied) => Emptied,
            (_, Alone { before, .. } | Unread { before }) if before.is_empty() => Emptied,
            (Alone { before, .. } | Unread { before }, _) => Unread { before },
        }
    }
}

/// Why the texts of replicas cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaTextError {
    /// The store failed.
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
