//! Starts threads, each with its own tokio runtime of one thread: those that serve, and background threads. Each thread
//! has a number, and random numbers that need not be secret.

#![warn(missing_docs)]

mod blocking;
mod failures;

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

pub use self::blocking::{
    check_room, free_unused, repeat_blocking, run_blocking, run_blocking_or_here, run_for_client,
};
pub use self::failures::Failures;
use crate::random::random_bytes;

/// Concurrent blocking tasks per thread; more are queued.
const MAX_BLOCKING_TASKS: usize = 1;

/// Starts a thread that runs `main` on its own runtime. The receiver resolves at its end, to an error after a panic.
pub fn start<F: Future<Output = ()>>(
    name: &str,
    main: impl FnOnce() -> F + Send + 'static,
) -> io::Result<oneshot::Receiver<()>> {
    start_with(name, Builder::enable_all, |runtime| runtime.block_on(async { main().await }))
}

/// Starts a background thread that runs `main` on its own runtime, at a lower priority: again if it panics. The
/// receiver resolves when the thread ends.
pub fn start_background<F: Future<Output = ()>>(
    name: &'static str,
    failures: &Failures,
    main: impl FnMut() -> F + Send + 'static,
) -> io::Result<oneshot::Receiver<()>> {
    start_on(name, failures, Builder::enable_all, main)
}

/// As [`start_background`], for a `main` that needs timers and no sockets: its runtime opens no files.
pub fn start_background_without_sockets<F: Future<Output = ()>>(
    name: &'static str,
    failures: &Failures,
    main: impl FnMut() -> F + Send + 'static,
) -> io::Result<oneshot::Receiver<()>> {
    start_on(name, failures, Builder::enable_time, main)
}

fn start_on<F: Future<Output = ()>>(
    name: &'static str,
    failures: &Failures,
    enable: fn(&mut Builder) -> &mut Builder,
    mut main: impl FnMut() -> F + Send + 'static,
) -> io::Result<oneshot::Receiver<()>> {
    let failures = failures.clone();
    start_with(name, enable, move |runtime| {
        lower_priority();
        failures.restart(name, || runtime.block_on(async { main().await }));
    })
}

fn start_with(
    name: &str,
    enable: fn(&mut Builder) -> &mut Builder,
    run: impl FnOnce(&Runtime) + Send + 'static,
) -> io::Result<oneshot::Receiver<()>> {
    let failed = |error: io::Error| {
        let help = "raise the limits of memory, threads and open files (ulimit -v, -u and -n)";
        io::Error::new(error.kind(), format!("cannot start the thread {name}: {error}: {help}"))
    };
    let (end, ended) = oneshot::channel();
    let (built, is_built) = sync_channel(1);
    let run = move || {
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(MAX_BLOCKING_TASKS).on_thread_start(lower_priority);
        // Here: a runtime must not be dropped on another one, as it would be without a thread.
        let runtime = match enable(&mut builder).build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(built.send(Err(error))),
        };
        // The receiver waits.
        let _ = built.send(Ok(()));
        run(&runtime);
        // The receiver may have been dropped.
        let _ = end.send(());
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(failed)?;
    is_built.recv().unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)?;
    Ok(ended)
}

/// Lowers the priority of the current thread, on systems with thread priorities.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 10);
}

/// Returns a number of the current thread, different for each one: from 0 on, in the order of their first calls.
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

/// Returns a random number from 0 to below 1.
///
/// It is the next one of this thread's generator, `SplitMix64` (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014): a request that may be recorded takes one.
pub fn random() -> f64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(u64::from_le_bytes(random_bytes()));
    }
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    // The 53 bits that a float holds.
    (mixed(state) >> 11) as f64 / (1_u64 << 53) as f64
}

fn mixed(state: u64) -> u64 {
    let bits = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_split_mix_64() {
        // The first two numbers of the published generator from 0.
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        assert_eq!(mixed(step), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mixed(step.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn random_numbers_are_spread_from_0_to_1() {
        let mut tenths = [0_u32; 10];
        for _ in 0..10_000 {
            tenths[(random() * 10.0) as usize] += 1;
        }
        // Ten standard deviations.
        assert!(tenths.iter().all(|count| count.abs_diff(1_000) < 300), "{tenths:?}");
    }
}
