//! What all connections of a store share.

use tokio::sync::watch;

use super::counts::Counts;
use super::log::Log;
use super::options::Options;

/// What all connections of a store share.
#[derive(Debug)]
pub(super) struct Shared {
    pub options: Options,
    pub counts: Counts,
    /// Notified when a connection is up for the first time, and when a cluster's nodes change.
    pub changed: watch::Sender<()>,
    pub log: Log,
}

impl Shared {
    pub fn new(options: Options) -> Shared {
        Shared {
            options,
            counts: Counts::default(),
            changed: watch::Sender::new(()),
            log: Log::default(),
        }
    }
}
