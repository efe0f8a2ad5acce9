//! Threads with their own runtimes.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;

/// Concurrent blocking tasks per thread; more are queued.
const MAX_BLOCKING_TASKS: usize = 1;

/// Starts a thread that runs `main` on its own runtime. The receiver resolves when the thread ends,
/// to an error if it panicked.
///
/// # Errors
///
/// If the system cannot create a thread or a runtime.
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
        // The receiver may have been dropped.
        let _ = end.send(());
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(ended)
}

/// Lowers the priority of the current thread, on systems with thread priorities.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 10);
}

/// Returns a number of the current thread, different for each one: from 0 on, in the order of their
/// first calls.
pub fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            number.set(Some(next));
            next
        })
    })
}
