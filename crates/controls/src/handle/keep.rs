//! Reads the controls of operators from their file at start, writes changes to it, reports damage. Format: `file.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Controls, Unkept};
use crate::file::{self, ControlFile, Found};
use crate::set::Merged;
use weir_common::threads::run_blocking;
use weir_store::TableRow;

impl Controls {
    pub(super) fn read_file(&mut self) {
        let Some(path) = self.options.file.clone() else { return };
        let Found { rows, damaged, is_outdated } = file::read(&path);
        let is_restored = rows.is_some();
        for damaged_path in file::both(&path) {
            let kept = file::beside(&damaged_path, ".damaged");
            if let Some((path, error)) = damaged.iter().find(|(path, _)| *path == damaged_path) {
                // The next write replaces it.
                let is_kept = std::fs::copy(path, &kept).is_ok();
                tracing::error!(
                    path = %path.display(),
                    error,
                    kept = is_kept.then(|| tracing::field::display(kept.display())),
                    is_restored,
                    "controls.file is damaged: controls may be missing"
                );
                self.damaged.push(if is_kept { kept } else { damaged_path });
            } else if kept.exists() {
                self.damaged.push(kept);
            }
        }
        if is_restored && !path.exists() {
            tracing::warn!(path = %path.display(), "controls.file does not exist: its copy is used");
        }
        let mut file = ControlFile::new(path.clone());
        let rows = rows.unwrap_or_default().into_iter();
        // The text has the time.
        self.merge_file(&path, rows.map(|(name, text)| TableRow { name, at: 0, text }).collect());
        file.change(self.set.lock().take_unwritten());
        file.is_outdated = is_outdated || file.is_unread;
        self.file = Some(Arc::new(tokio::sync::Mutex::new(file)));
    }

    fn merge_file(&self, path: &Path, rows: Vec<TableRow>) {
        let now = self.now();
        let mut set = self.set.lock();
        let Merged { unknown, omitted, .. } = set.merge(rows, now);
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

    /// Returns the files of controls that were damaged, until an operator has deleted what was kept of them.
    pub fn damaged_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.damaged.iter().filter(|path| path.try_exists().unwrap_or(true))
    }

    /// Returns why the file lacks changes; none if it has all, or there is none.
    pub fn unkept(&self) -> Option<Unkept> {
        self.unkept.lock().clone()
    }

    pub(super) fn not_kept_because(&self, kept: bool) -> Option<String> {
        self.unkept().filter(|_| !kept).map(|unkept| unkept.error)
    }

    /// Writes what the file lacks. Returns whether there is a file, and it has the controls as they are now.
    pub(super) async fn write_file(&self) -> bool {
        let Some(file) = &self.file else {
            self.set.lock().forget_unwritten();
            return false;
        };
        let mut file = file.clone().lock_owned().await;
        file.change(self.set.lock().take_unwritten());
        if !file.is_outdated {
            return true;
        }
        let write = move || file.write().map_err(|error| (file.path.clone(), error));
        match run_blocking(write).await {
            Ok(Ok(())) => {
                if self.unkept.lock().take().is_some() {
                    tracing::info!("controls are kept again");
                }
                true
            }
            Ok(Err((path, error))) => {
                let path = path.display();
                if let Some(suppressed) = self.file_log.pass() {
                    tracing::error!(%path, %error, suppressed, "controls are not kept");
                }
                let mut unkept = self.unkept.lock();
                let since = unkept.as_ref().map_or_else(|| self.now(), |unkept| unkept.since);
                let error = format!("controls.file {path} cannot be written: {error}");
                *unkept = Some(Unkept { error, since });
                false
            }
            Err(_) => false,
        }
    }
}
