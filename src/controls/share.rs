//! Exchanges controls with the table that all replicas share.

use std::time::Duration;

use parking_lot::Mutex;

use super::ControlClock;
use super::set::{ControlSet, Merged};
use crate::store::{SharedTable, StoreError};
use crate::throttle::Throttle;

/// The interval of log lines about the table.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What is known about the table.
#[derive(Debug)]
pub(super) struct Sharing {
    /// The version that was read or written last.
    version: Mutex<Option<String>>,
    failed: Mutex<Option<StoreError>>,
    failed_line: Throttle,
    unknown_line: Throttle,
}

impl Sharing {
    pub fn new() -> Sharing {
        Sharing {
            version: Mutex::default(),
            failed: Mutex::default(),
            failed_line: Throttle::new(LOG_INTERVAL),
            unknown_line: Throttle::new(LOG_INTERVAL),
        }
    }

    /// Why the last exchange failed; none if it did not.
    pub fn failed(&self) -> Option<StoreError> {
        *self.failed.lock()
    }

    /// Reads what others have written, if anything. Returns whether controls have changed here, also if
    /// it fails.
    pub async fn read(
        &self,
        table: &dyn SharedTable,
        clock: &ControlClock,
        set: &Mutex<ControlSet>,
    ) -> (bool, Result<(), StoreError>) {
        let read = match table.version().await {
            Ok(read) => read,
            Err(error) => return (false, Err(error)),
        };
        let shift = clock.set_store_time(read.time);
        let is_shifted = shift.is_some_and(|by| set.lock().shift(by));
        let is_known = self.version.lock().as_ref() == Some(&read.version);
        if is_known {
            return (is_shifted, Ok(()));
        }
        let rows = match table.rows().await {
            Ok(rows) => rows,
            Err(error) => return (is_shifted, Err(error)),
        };
        let merged = set.lock().merge(rows, clock.now());
        *self.version.lock() = Some(read.version);
        self.report(&merged);
        (is_shifted || merged.changed, Ok(()))
    }

    /// Writes what the table lacks.
    ///
    /// # Errors
    ///
    /// The table cannot be reached.
    pub async fn write(
        &self,
        table: &dyn SharedTable,
        set: &Mutex<ControlSet>,
    ) -> Result<(), StoreError> {
        let changes = set.lock().changes();
        if changes.is_empty() {
            return Ok(());
        }
        let written = table.write(&changes).await?;
        let mut version = self.version.lock();
        // Otherwise another replica has written, and its rows are read next time.
        if version.as_ref() == Some(&written.before) {
            *version = Some(written.after);
        }
        drop(version);
        set.lock().shared(&changes);
        Ok(())
    }

    /// Notes whether an exchange has failed, and logs when that changes.
    pub fn note(&self, exchanged: Result<(), StoreError>) {
        let failed = exchanged.err();
        let before = std::mem::replace(&mut *self.failed.lock(), failed);
        match (before, failed) {
            (None, Some(error)) => {
                if let Some(suppressed) = self.failed_line.pass() {
                    tracing::warn!(
                        %error,
                        suppressed,
                        "controls are not shared: changes apply to this replica only"
                    );
                }
            }
            (Some(_), None) => tracing::info!("controls are shared again"),
            _ => {}
        }
    }

    fn report(&self, Merged { unknown, omitted, .. }: &Merged) {
        if unknown + omitted > 0
            && let Some(suppressed) = self.unknown_line.pass()
        {
            tracing::warn!(
                unknown,
                omitted,
                suppressed,
                "controls of other replicas are ignored: unreadable, or too many"
            );
        }
    }
}
