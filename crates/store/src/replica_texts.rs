//! A text of each replica, for the others that share a store.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::replicas::AnnounceError;

/// How long a text is kept unless it is written again.
pub const TEXT_KEPT_FOR: Duration = Duration::from_secs(10);

/// The largest text.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// The most texts that are read.
pub const MAX_TEXTS: usize = 256;

/// Texts of replicas, and a secret that these replicas share. Futures resolve within a second or so.
pub trait ReplicaTexts: Debug + Send + Sync {
    /// Resolves when the server of the texts has answered, or could not be reached.
    fn tried(&self) -> BoxFuture<'_, ()>;

    /// Writes the text of this replica, of up to [`MAX_TEXT_BYTES`], for [`TEXT_KEPT_FOR`]. It was made with
    /// `secret`, which becomes that of all replicas if they have none. Returns the secret of all replicas: if
    /// it is another one, nothing is written.
    fn publish<'a>(
        &'a self,
        secret: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<String, AnnounceError>>;

    /// Returns the texts of the other replicas, up to [`MAX_TEXTS`]. Each may be anything: others can write to
    /// the store, too.
    fn others(&self) -> BoxFuture<'_, Result<Vec<String>, AnnounceError>>;
}
