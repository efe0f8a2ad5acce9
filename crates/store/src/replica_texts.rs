//! A text of each replica, for the others that share a store.

use std::fmt::Debug;

use futures_util::future::BoxFuture;

use super::StoreError;

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

/// Texts of replicas, and a secret that these replicas share. Futures resolve within a second or so.
pub trait ReplicaTexts: Debug + Send + Sync {
    /// Resolves when the server of the texts has answered, or could not be reached.
    fn tried(&self) -> BoxFuture<'_, ()>;

    /// Writes the text of this replica, of up to [`MAX_TEXT_BYTES`], for a short time. It was made with
    /// `secret`, which becomes that of all replicas if they have none. Returns the secret of all replicas: if
    /// it is another one, nothing is written.
    fn publish<'a>(
        &'a self,
        secret: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<String, ReplicaTextError>>;

    /// Returns the texts of the other replicas, up to a bound. Each may be anything: others can write to
    /// the store, too.
    fn others(&self) -> BoxFuture<'_, Result<Vec<String>, ReplicaTextError>>;
}
