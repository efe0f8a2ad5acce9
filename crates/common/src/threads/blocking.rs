//! Runs work that blocks or computes for long on other threads than those that serve requests.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

/// Runs work that may block on a thread of the current runtime; an error without room for one, or if it panicked.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    run_kept(Arc::new(Mutex::new(Some(work)))).await.unwrap_or_else(|_| Err(no_room()))
}

fn no_room() -> io::Error {
    io::Error::other("the system has no room for a thread")
}

/// Runs work as [`run_blocking`] does, or here if the system has no room for a thread. Returns nothing if it panics.
pub async fn run_blocking_or_here<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match run_kept(Arc::new(Mutex::new(Some(work)))).await {
        Ok(done) => done.ok(),
        Err(work) => Some(work()),
    }
}

/// Repeats work at an interval, as [`run_blocking`] runs it. Never ends. After a failure, calls `failed` and goes on.
pub async fn repeat_blocking(
    period: Duration,
    work: impl Fn() + Send + Sync + 'static,
    failed: impl Fn() + Send,
) {
    let work = Arc::new(work);
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let work = work.clone();
        if run_blocking(move || work()).await.is_err() {
            failed();
        }
    }
}

/// Runs work for a client as [`run_blocking`] does, or drops it if the client goes away, and with it this
/// future, before it is its turn: else clients that hang up leave a queue without a bound.
pub async fn run_for_client<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let kept = Arc::new(Mutex::new(Some(work)));
    let _client = Client(kept.clone());
    run_kept(kept).await.unwrap_or_else(|_| Err(no_room()))
}

/// Takes the work back when it is dropped.
struct Client<F>(Arc<Mutex<Option<F>>>);

impl<F> Drop for Client<F> {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

async fn run_kept<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
    kept: Arc<Mutex<Option<F>>>,
) -> Result<io::Result<T>, F> {
    // Where no thread can be started, the runtime panics, and keeps what it was to run.
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

/// Waits until no request uses a value, then frees it. Many rules or controls take milliseconds to free, which would
/// delay requests on a serving thread: call it on another thread, one that may block. Returns whether it is freed.
pub fn free_unused<T>(mut value: Arc<T>) -> bool {
    // A request takes milliseconds at most. One that takes longer frees the value itself.
    for _ in 0..100 {
        match Arc::try_unwrap(value) {
            Ok(unused) => {
                drop(unused);
                return true;
            }
            Err(used) => value = used,
        }
        #[expect(clippy::disallowed_methods, reason = "the thread serves no requests")]
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Checks that the system has room for a thread, for libraries that do not.
pub fn check_room() -> io::Result<()> {
    let thread = Builder::new().name("weir-check".to_owned()).spawn(|| ())?;
    // It has nothing that could panic.
    let _ = thread.join();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use tokio::runtime::Builder;

    use super::*;

    fn start(work: &mut (impl Future + Unpin)) {
        let polled = pin!(work).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }

    #[test]
    fn a_value_is_freed_unless_it_is_used_for_long() {
        let value = Arc::new(());
        let used = value.clone();
        assert!(!free_unused(value));
        assert!(free_unused(used));
    }

    #[test]
    fn work_of_clients_that_have_gone_is_skipped() {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (release, released) = mpsc::sync_channel::<()>(1);
            let mut first = Box::pin(run_for_client(move || released.recv()));
            start(&mut first);
            let count = Arc::new(AtomicUsize::new(0));
            for _ in 0..100 {
                let count = count.clone();
                start(&mut Box::pin(run_for_client(move || count.fetch_add(1, Ordering::Relaxed))));
            }
            assert_eq!(Arc::strong_count(&count), 1, "what their work holds is free at once");
            release.send(()).unwrap();
            first.await.unwrap().unwrap();
            let last = count.clone();
            let done = run_for_client(move || last.fetch_add(1, Ordering::Relaxed)).await;
            assert_eq!(done.unwrap(), 0, "nothing else has run");
        });
    }
}
