//! Exchanges operators' controls with the table in Redis that all replicas share: reads changes, writes its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::set::{ControlSet, Merged};
use super::time::ControlClock;
use weir_common::throttle::Throttle;
use weir_store::{SharedTable, TableError, TableWritten};

/// The waits until rows that could not be read are asked for again: the first one, which doubles, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The outcome of the first read of the shared table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstRead {
    /// It has not ended yet.
    #[default]
    Waiting,
    /// The read failed, and is repeated.
    Failed,
    /// The controls of others are active, or this process may not read them.
    Done,
}

#[derive(Debug, Default)]
pub(super) struct Sharing {
    pub first_read: watch::Sender<FirstRead>,
    /// The version that was read or written last.
    version: Mutex<Option<String>>,
    unread: Mutex<Option<Unread>>,
    /// Why the last exchange failed.
    pub failed: Mutex<Option<TableError>>,
    failed_line: Throttle,
    unknown_line: Throttle,
    /// How often the table was found empty after it had rows.
    pub losses: AtomicU64,
}

/// Rows that could not be read, such as those of which one is too large.
#[derive(Debug)]
struct Unread {
    version: String,
    error: TableError,
    wait: Duration,
    /// When the rows are asked for again.
    until: Instant,
}

impl Sharing {
    /// Notes the version of a table, which has lost its rows if it had one before and has none now.
    fn note_version(&self, known: &mut Option<String>, now: &str) {
        if now.is_empty() && known.take_if(|known| !known.is_empty()).is_some() {
            self.losses.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                "redis was emptied: what was counted is lost, controls are written again"
            );
        }
    }

    /// Notes that what was read is active, or why reading failed.
    pub fn note_read(&self, failed: Option<TableError>) {
        let now = match failed {
            None | Some(TableError::NotPermitted) => FirstRead::Done,
            Some(TableError::Store(_)) => FirstRead::Failed,
        };
        self.first_read.send_if_modified(|first| {
            let is_new = *first != FirstRead::Done && *first != now;
            if is_new {
                *first = now;
            }
            is_new
        });
    }

    /// Reads what others have written, if anything. Returns whether controls have changed here.
    pub async fn read(
        &self,
        table: &dyn SharedTable,
        clock: &ControlClock,
        set: &Mutex<ControlSet>,
    ) -> Result<bool, TableError> {
        let read = table.version().await?;
        let is_first = !clock.follows_store();
        clock.set_store_time(read.time);
        if is_first {
            set.lock().set_back(read.time);
        }
        {
            let mut known = self.version.lock();
            if known.as_ref() == Some(&read.version) {
                return Ok(false);
            }
            self.note_version(&mut known, &read.version);
        }
        if let Some(error) = self.unread_error(&read.version) {
            return Err(error);
        }
        let rows = table.rows().await;
        let rows = rows.inspect_err(|error| self.note_unread(&read.version, *error))?;
        *self.unread.lock() = None;
        let Merged { changed, unknown, omitted } = set.lock().merge(rows, clock.now());
        *self.version.lock() = Some(read.version);
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
        Ok(changed)
    }

    /// Returns why rows of this version are not asked for again yet.
    fn unread_error(&self, version: &str) -> Option<TableError> {
        let unread = self.unread.lock();
        let is_waiting =
            |unread: &&Unread| unread.version == version && Instant::now() < unread.until;
        unread.as_ref().filter(is_waiting).map(|unread| unread.error)
    }

    fn note_unread(&self, version: &str, error: TableError) {
        let mut unread = self.unread.lock();
        let last = unread.as_ref().filter(|last| last.version == version).map(|last| last.wait);
        let wait = last.map_or(FIRST_WAIT, |wait| LONGEST_WAIT.min(wait * 2));
        let (version, until) = (version.to_owned(), Instant::now() + wait);
        *unread = Some(Unread { version, error, wait, until });
    }

    /// Writes what the table lacks.
    pub async fn write(
        &self,
        table: &dyn SharedTable,
        set: &Mutex<ControlSet>,
    ) -> Result<(), TableError> {
        let changes = set.lock().changes();
        if changes.is_empty() {
            return Ok(());
        }
        let written = table.write(&changes).await?;
        let mut version = self.version.lock();
        match written {
            TableWritten::Alone { before, after } => {
                self.note_version(&mut version, &before);
                if version.as_ref() == Some(&before) {
                    *version = Some(after);
                }
            }
            // The version that is known is an old one, so all rows are read next time.
            TableWritten::Unread { before } => self.note_version(&mut version, &before),
            TableWritten::Emptied => self.note_version(&mut version, ""),
        }
        drop(version);
        set.lock().shared(&changes);
        Ok(())
    }

    /// Notes whether an exchange has failed, and logs when that changes.
    pub fn note(&self, exchanged: Result<(), TableError>) {
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
}
