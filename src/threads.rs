//! Threads with a runtime of their own.

use std::future::Future;
use std::io;

use tokio::sync::oneshot;

/// Blocking tasks of one such thread at a time; more wait.
const MAX_BLOCKING_TASKS: usize = 1;

/// Starts a thread that runs `main` on a runtime of its own. The receiver resolves when it has
/// ended, to an error where it panicked.
///
/// # Errors
///
/// Where the system has no room for a thread or a runtime.
pub fn start<F: Future<Output = ()>>(
    name: &str,
    main: impl FnOnce() -> F + Send + 'static,
) -> io::Result<oneshot::Receiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_TASKS)
        .on_thread_start(lower_priority)
        .build()?;
    let (end, ended) = oneshot::channel();
    let run = move || {
        runtime.block_on(async { main().await });
        // The receiver is gone where nothing waits for the end.
        let _ = end.send(());
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(ended)
}

/// Lets other threads run before this one, where the system has priorities of threads.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 10);
}
