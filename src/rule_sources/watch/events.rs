//! Watches the directories of rule files and lists, and notifies of file system events that may change the rules.

use std::path::PathBuf;
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode};
use tokio::sync::Notify;

use super::places::Places;
use weir_common::threads::check_room;
use weir_rules::source::Selection;

/// Watches the directories of the selected files and of lists, and sets `errors` to those that cannot be watched.
pub fn watch(
    selection: &Selection,
    lists: &[PathBuf],
    changed: &Arc<Notify>,
    errors: &mut String,
) -> Option<RecommendedWatcher> {
    let mut last = None;
    let mut places = Places::of(selection, lists);
    // A directory created before its watch would be missed, so the places are compared again. If
    // directories keep changing, another event follows soon.
    for _ in 0..3 {
        match watch_all(&places, changed, errors) {
            Ok(watcher) => last = Some(watcher),
            Err(error) => *errors = error.to_string(),
        }
        let now = Places::of(selection, lists);
        if now == places {
            break;
        }
        places = now;
    }
    last
}

/// Watches all directories, and adds those that cannot be watched to `errors`.
fn watch_all(
    places: &Places,
    changed: &Arc<Notify>,
    errors: &mut String,
) -> notify::Result<RecommendedWatcher> {
    let (changed, watched) = (changed.clone(), places.clone());
    // The watcher panics if it cannot start its thread.
    check_room().map_err(notify::Error::io)?;
    let mut watcher = notify::recommended_watcher(move |event| {
        if is_relevant(&watched, &event) {
            changed.notify_one();
        }
    })?;
    errors.clear();
    let mut paths = notify::Watcher::paths_mut(&mut watcher);
    for directory in places.directories() {
        if let Err(error) = paths.add(directory, RecursiveMode::NonRecursive) {
            let between = if errors.is_empty() { "" } else { "; " };
            *errors += &format!("{between}{}: {error}", directory.display());
        }
    }
    paths.commit()?;
    Ok(watcher)
}

/// Whether an event may change the rules. Reading does not, and would trigger itself.
fn is_relevant(places: &Places, event: &notify::Result<Event>) -> bool {
    let Ok(event) = event else { return true };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return false,
        _ => {}
    }
    event.need_rescan()
        || event.paths.is_empty()
        || event.paths.iter().any(|path| places.contains(path))
}
