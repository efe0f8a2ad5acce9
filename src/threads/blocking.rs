//! Slow work outside the threads that serve.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Builder;

/// Runs work that may block on a thread for that, of the current runtime.
///
/// # Errors
///
/// The system has no room for a thread, or the work panicked, which the log has.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    // It panics if there is no thread and none can be started. The work may be done later then.
    let started = catch_unwind(AssertUnwindSafe(|| tokio::task::spawn_blocking(work)));
    let Ok(started) = started else {
        return Err(io::Error::other("the system has no room for a thread"));
    };
    started.await.map_err(io::Error::other)
}

/// Checks that the system has room for a thread, for libraries that do not.
///
/// # Errors
///
/// It has not.
pub fn check_room() -> io::Result<()> {
    let thread = Builder::new().name("weir-check".to_owned()).spawn(|| ())?;
    // It has nothing that could panic.
    let _ = thread.join();
    Ok(())
}
