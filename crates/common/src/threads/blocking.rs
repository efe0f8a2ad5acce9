//! Slow work outside the threads that serve.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Builder;

use parking_lot::Mutex;

/// Runs work that may block on a thread for that, of the current runtime.
///
/// # Errors
///
/// The system has no room for a thread, or the work panicked, which the log has.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let done = run_blocking_or_return(work).await;
    done.unwrap_or_else(|_| Err(io::Error::other("the system has no room for a thread")))
}

/// Runs work as [`run_blocking`] does, and returns it if the system has no room for a thread.
///
/// # Errors
///
/// The work panicked, as in the inner result.
pub async fn run_blocking_or_return<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
    work: F,
) -> Result<io::Result<T>, F> {
    // Where no thread can be started, the runtime panics, and keeps what it was to run.
    let kept = Arc::new(Mutex::new(Some(work)));
    let of_thread = kept.clone();
    let run = move || {
        let work = of_thread.lock().take();
        work.map(|work| work())
    };
    match catch_unwind(AssertUnwindSafe(|| tokio::task::spawn_blocking(run))) {
        Ok(started) => {
            let done = started.await.map_err(io::Error::other);
            Ok(done.and_then(|done| done.ok_or_else(|| io::Error::other("done already"))))
        }
        Err(_) => {
            let work = kept.lock().take();
            work.map_or_else(|| Ok(Err(io::Error::other("done by another thread"))), Err)
        }
    }
}

/// Checks that the system has room for a thread, for libraries that do not.
///
/// # Errors
///
/// There is no room.
pub fn check_room() -> io::Result<()> {
    let thread = Builder::new().name("weir-check".to_owned()).spawn(|| ())?;
    // It has nothing that could panic.
    let _ = thread.join();
    Ok(())
}
