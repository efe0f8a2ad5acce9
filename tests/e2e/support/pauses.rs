//! Pauses of the machine: what is measured beside a long one says nothing about weir.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A later wake-up takes the margin that weir leaves to a caller of 20 ms.
const LATE: Duration = Duration::from_millis(2);

/// A thread that wakes up each millisecond, until its [end](Pauses::end).
pub struct Pauses {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Late>,
}

/// How late the thread woke up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Late {
    /// The part of the time in which it was late.
    pub part: f64,
    pub longest: Duration,
}

impl Pauses {
    pub fn watch() -> Pauses {
        let ended = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let ended = ended.clone();
            move || watch(&ended)
        });
        Pauses { ended, thread }
    }

    pub fn end(self) -> Late {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().expect("it watched to its end")
    }
}

fn watch(ended: &AtomicBool) -> Late {
    const STEP: Duration = Duration::from_millis(1);
    let start = Instant::now();
    let (mut sum, mut longest) = (Duration::ZERO, Duration::ZERO);
    while !ended.load(Ordering::Relaxed) {
        let before = Instant::now();
        thread::sleep(STEP);
        let late = before.elapsed().saturating_sub(STEP);
        longest = longest.max(late);
        if late > LATE {
            sum += late;
        }
    }
    Late { part: sum.as_secs_f64() / start.elapsed().as_secs_f64(), longest }
}

impl Late {
    pub fn is_never(self) -> bool {
        self.longest <= LATE
    }
}
