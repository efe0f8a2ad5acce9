//! Processes that are killed or stopped while clients record each hit that was admitted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Hit, gauge, on_disk, try_hit};
use crate::support::weir::Weir;

const LIMIT: u64 = 3_000;
const CLIENTS: usize = 3;

/// How often the process is killed; with `WEIR_LONG_TESTS`, more often.
fn kills() -> u64 {
    if std::env::var_os("WEIR_LONG_TESTS").is_some() { 200 } else { 8 }
}

/// Sends hits of a user from some clients for that long, and ends the process meanwhile. Returns when
/// each of those that were admitted was answered, and what `end` returns.
fn hit_until<T>(
    weir: &mut Weir,
    user: &str,
    time: Duration,
    end: impl FnOnce(&mut Weir) -> T,
) -> (Vec<Instant>, T) {
    let (stop, to) = (AtomicBool::new(false), weir.http);
    let client = || {
        let mut admitted = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            match try_hit(to, user) {
                Some(Hit { allowed: true, .. }) => admitted.push(Instant::now()),
                Some(_) => {}
                None => break,
            }
        }
        admitted
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        thread::sleep(time);
        let ended = end(weir);
        stop.store(true, Ordering::Relaxed);
        let admitted = clients.into_iter().flat_map(|client| client.join().unwrap());
        (admitted.collect(), ended)
    })
}

/// Sends one hit. Returns how many were counted before, and whether it was admitted.
fn counted(weir: &Weir, user: &str) -> (u64, bool) {
    let hit = try_hit(weir.http, user).expect("an answer");
    (LIMIT - hit.remaining - u64::from(hit.allowed), hit.allowed)
}

/// The window of one user, over processes that were killed.
#[derive(Debug, Default)]
struct Window {
    user: String,
    /// Hits that were admitted.
    admitted: u64,
    /// Hits that the last process counted, as far as they were answered.
    counted: u64,
    /// Hits of the last process that may be lost, and of all.
    unsynced: u64,
    unsynced_in_all: u64,
}

impl Window {
    fn of(user: u64) -> Window {
        Window { user: format!("user {user}"), ..Window::default() }
    }

    /// Compares what the next process counts, and uses the window up if it is nearly so.
    fn check(&mut self, weir: &Weir) {
        let (before, allowed) = counted(weir, &self.user);
        // Hits without an answer may have been counted.
        assert!(before <= self.counted + CLIENTS as u64, "{before}: {self:?}");
        assert!(before + self.unsynced >= self.counted, "{before}: {self:?}");
        self.admitted += u64::from(allowed);
        self.counted = before + u64::from(allowed);
        if before > LIMIT / 4 * 3 {
            while counted(weir, &self.user).1 {
                self.admitted += 1;
            }
            assert!(self.admitted <= LIMIT + self.unsynced_in_all, "{self:?}");
        }
    }
}

#[test]
fn a_killed_process_loses_at_most_the_hits_since_the_last_sync() {
    let directory = tempfile::tempdir().unwrap();
    let (mut window, mut windows) = (Window::of(0), 0);
    for round in 0..kills() {
        let mut weir = on_disk(directory.path(), "20ms").start();
        window.check(&weir);
        if window.counted > LIMIT / 4 * 3 {
            windows += 1;
            window = Window::of(windows);
            window.check(&weir);
        }
        let started = Instant::now();
        let time = Duration::from_millis(30 + round * 37 % 150);
        let (hits, synced_until) = hit_until(&mut weir, &window.user, time, |weir| {
            let asked = Instant::now();
            let age = gauge(weir, "weir_disk_sync_age_seconds");
            weir.kill();
            asked - Duration::from_secs_f64(age)
        });
        assert!(!hits.is_empty());
        window.admitted += hits.len() as u64;
        window.counted += hits.len() as u64;
        window.unsynced = hits.iter().filter(|&&at| at >= synced_until).count() as u64;
        // So may the first hit of all.
        window.unsynced += u64::from(started >= synced_until);
        window.unsynced_in_all += window.unsynced;
    }
    window.check(&on_disk(directory.path(), "20ms").start());
    eprintln!("{windows} windows, the last: {window:?}");
}

#[test]
fn a_stopped_process_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut admitted = 0;
    for _ in 0..5 {
        // Nothing is written but at the end.
        let mut weir = on_disk(directory.path(), "1h").start();
        let (before, allowed) = counted(&weir, "a");
        // Hits without an answer may have been counted.
        assert!((admitted..=admitted + CLIENTS as u64).contains(&before), "{before} of {admitted}");
        let (hits, status) = hit_until(&mut weir, "a", Duration::from_millis(100), |weir| {
            weir.signal("TERM");
            weir.wait_until_ended()
        });
        assert_eq!(status.code(), Some(0));
        admitted = before + u64::from(allowed) + hits.len() as u64;
    }
}
