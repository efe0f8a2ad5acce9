//! Keeps controls in a file, and reports what damage of it has lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Controls;
use crate::controls::file::{self, ControlFile, Found};
use crate::controls::set::Merged;
use weir_common::threads::run_blocking;

/// What damage of the file has lost.
#[derive(Debug, Default)]
pub(super) struct Missing {
    lost: usize,
    /// The damaged file, which the operator deletes when nothing is missing any more.
    kept: Option<PathBuf>,
}

impl Missing {
    /// Returns how many changes are missing, at least.
    pub fn count(&self) -> usize {
        let is_seen = || self.kept.as_ref().is_some_and(|kept| !kept.exists());
        if self.lost > 0 && is_seen() { 0 } else { self.lost }
    }
}

impl Controls {
    /// Reads the file, if there is one.
    pub(super) fn read_file(&mut self) {
        let Some(path) = self.options.file.clone() else { return };
        let (found, unreadable) = match file::read(&path) {
            Ok(found) => (found, None),
            Err(error) => (Found { next: 1, lost: 1, ..Found::default() }, Some(error)),
        };
        let Found { rows, next, damage, restored, lost, lost_before, is_outdated } = found;
        let is_damaged = unreadable.is_some() || !damage.is_empty();
        let mut kept = (lost_before > 0).then(|| file::damaged(&path));
        if is_damaged {
            kept = file::keep_damaged(&path);
        }
        let copy = kept.as_deref().map(|kept| tracing::field::display(kept.display()));
        if let Some(error) = unreadable {
            tracing::error!(
                path = %path.display(),
                error,
                copy,
                "controls.file is unreadable and ignored: fix it and restart, or the next change \
                 replaces it"
            );
        } else if is_damaged {
            let damage = damage.join("; ");
            tracing::error!(
                path = %path.display(),
                damage,
                restored,
                lost,
                copy,
                "controls.file is damaged"
            );
        }
        let lost = lost + lost_before;
        self.missing = Missing { lost, kept };
        self.merge_file(&path, rows);
        let file = ControlFile::new(path, next, lost, is_outdated);
        self.file = Some(Arc::new(tokio::sync::Mutex::new(file)));
    }

    /// Activates the rows of the file.
    fn merge_file(&self, path: &Path, rows: Vec<(String, String)>) {
        let now = self.now();
        let mut set = self.set.lock();
        let Merged { unknown, omitted, .. } = set.merge(rows, now);
        // They are in the file.
        set.forget_unwritten();
        let changes = set.take_inactive();
        drop(set);
        let path = path.display();
        if unknown + omitted > 0 {
            tracing::error!(
                %path,
                unknown,
                omitted,
                "controls in the file are ignored: invalid, or too many"
            );
        }
        let controls = self.list().len();
        if controls > 0 {
            tracing::info!(%path, controls, "controls are read");
            self.active.change_controls(changes);
            self.activated();
        }
    }

    /// Writes what the file lacks, if there is one: changes made at the same time together. Returns
    /// whether it has the controls as they are now.
    pub(super) async fn write_file(&self) -> bool {
        let Some(file) = &self.file else {
            self.set.lock().forget_unwritten();
            return false;
        };
        let mut file = file.clone().lock_owned().await;
        if !file.is_outdated && !self.set.lock().has_unwritten() {
            return true;
        }
        let begin = move || (file.begin(), file);
        let Ok((written, mut file)) = run_blocking(begin).await else { return false };
        let rows = {
            let mut set = self.set.lock();
            if written.is_none() { set.take_all() } else { set.take_unwritten() }
        };
        let write =
            move || file.write(&rows, written).map_err(|error| (file.path().to_owned(), error));
        match run_blocking(write).await {
            Ok(Ok(())) => true,
            Ok(Err((path, error))) => {
                if let Some(suppressed) = self.file_log.pass() {
                    let path = path.display();
                    tracing::error!(%path, %error, suppressed, "controls are not kept");
                }
                false
            }
            Err(_) => false,
        }
    }
}
