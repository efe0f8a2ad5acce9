//! Time as an argument: the service runs on the system's clock, tests on a clock of their own.

#![warn(missing_docs)]

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::ClockId;
use tokio::time::MissedTickBehavior;

/// Microseconds, as limits count them.
type Micros = u64;

const SECOND: Micros = 1_000_000;

use crate::metrics::{MetricFamily, MetricSink, MetricSource};

const STEPS: MetricFamily = MetricFamily::counter("clock_steps", "Steps of the wall clock", &[]);

/// How often [`SystemClock`] is compared with the wall clock.
const COMPARE_EVERY: Duration = Duration::from_secs(1);

/// Smaller differences are not corrected: an adjusted rate, up to half a millisecond a second, is no step.
const TOLERANCE: Micros = 100_000;

/// A reading that took longer is ignored: the thread was interrupted between the two clocks.
const MAX_READING: Micros = 10_000;

/// The time of day, which limits compute with. It may step in either direction.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// Microseconds since the Unix epoch.
    fn now(&self) -> Micros;
}

/// A time that never steps, for durations.
pub trait Monotonic: std::fmt::Debug + Send + Sync + 'static {
    /// Microseconds since an arbitrary, fixed instant.
    fn monotonic(&self) -> Micros;
}

/// The wall clock, computed from the monotonic clock, so that both cost one reading. It follows steps
/// of the wall clock while [`follow`](Self::follow) runs.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    /// The wall clock minus the monotonic clock.
    offset: AtomicI64,
    steps: AtomicU64,
    last_step: Mutex<Option<(i64, Instant)>>,
}

impl SystemClock {
    /// Starts at the system's time.
    pub fn new() -> SystemClock {
        let (steps, last_step) = Default::default();
        let offset = AtomicI64::new(signed(wall()));
        SystemClock { started: Instant::now(), offset, steps, last_step }
    }

    /// Returns how far the wall clock stepped last, in microseconds, and when.
    pub fn last_step(&self) -> Option<(i64, Instant)> {
        *self.last_step.lock()
    }

    /// Compares the clocks each second, and follows the wall clock if it stepped; logs what `limits_follow`. Never ends.
    pub async fn follow(&self, limits_follow: &str) {
        let mut tick = tokio::time::interval(COMPARE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let before = self.monotonic();
            let wall = wall();
            if self.monotonic() - before > MAX_READING {
                continue;
            }
            // At most one line a second: each step explains other answers.
            if let Some(step) = self.correct(wall, before) {
                let step_ms = step / 1_000;
                tracing::warn!(step_ms, limits_follow, "the wall clock stepped");
            }
        }
    }

    /// Returns how far the wall clock stepped, if it did.
    fn correct(&self, wall: Micros, monotonic: Micros) -> Option<i64> {
        let offset = signed(wall).saturating_sub(signed(monotonic));
        let step = offset.saturating_sub(self.offset.load(Ordering::Relaxed));
        if step.unsigned_abs() <= TOLERANCE {
            return None;
        }
        self.offset.store(offset, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
        *self.last_step.lock() = Some((step, Instant::now()));
        Some(step)
    }

    fn at(&self, monotonic: Micros) -> Micros {
        let now = signed(monotonic).saturating_add(self.offset.load(Ordering::Relaxed));
        u64::try_from(now).unwrap_or(0)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        self.at(self.monotonic())
    }
}

impl MetricSource for SystemClock {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counter(STEPS, self.steps.load(Ordering::Relaxed));
    }
}

impl Monotonic for SystemClock {
    fn monotonic(&self) -> Micros {
        self.started.elapsed().as_micros() as Micros
    }
}

fn signed(micros: Micros) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn wall() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as Micros
}

/// The system's wall clock itself, with all its steps, for comparison with other clocks.
#[derive(Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Micros {
        wall()
    }
}

/// A time that never steps, and goes on while the machine is suspended.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    #[cfg(target_os = "linux")]
    const ID: ClockId = ClockId::Boottime;
    /// On other systems the monotonic clock goes on while the machine is suspended.
    #[cfg(not(target_os = "linux"))]
    const ID: ClockId = ClockId::Monotonic;
}

impl Monotonic for BootClock {
    fn monotonic(&self) -> Micros {
        let time = rustix::time::clock_gettime(BootClock::ID);
        let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        seconds * SECOND + nanos / 1_000
    }
}

/// A clock that stands still until it is set.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
    /// How far it has stepped; its monotonic time does not step.
    stepped: AtomicI64,
}

impl ManualClock {
    /// Returns a clock that shows `now`.
    pub fn new(now: Micros) -> ManualClock {
        ManualClock { now: AtomicU64::new(now), stepped: AtomicI64::new(0) }
    }

    /// Sets the time, which may be earlier.
    pub fn set(&self, now: Micros) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// Lets time pass.
    pub fn advance(&self, by: Micros) {
        self.now.fetch_add(by, Ordering::Relaxed);
    }

    /// Steps as a wall clock does, without time passing.
    pub fn step(&self, by: i64) {
        self.set(self.now().saturating_add_signed(by));
        self.stepped.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        self.now.load(Ordering::Relaxed)
    }
}

impl Monotonic for ManualClock {
    fn monotonic(&self) -> Micros {
        self.now().saturating_add_signed(-self.stepped.load(Ordering::Relaxed))
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Micros {
        (**self).now()
    }
}

impl<C: Monotonic> Monotonic for std::sync::Arc<C> {
    fn monotonic(&self) -> Micros {
        (**self).monotonic()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAWN: Micros = 1_800_000_000 * SECOND;

    fn clock_at(wall: Micros) -> SystemClock {
        SystemClock { offset: AtomicI64::new(signed(wall)), ..SystemClock::new() }
    }

    #[test]
    fn steps_are_followed_in_both_directions_with_the_next_reading() {
        let clock = clock_at(DAWN);
        assert_eq!(clock.correct(DAWN + SECOND, SECOND), None);
        assert_eq!(clock.last_step(), None);
        let day = 86_400 * SECOND;
        // A virtual machine that was suspended for a day.
        assert_eq!(clock.correct(DAWN + day + 2 * SECOND, 2 * SECOND), Some(signed(day)));
        assert_eq!(clock.at(3 * SECOND), DAWN + day + 3 * SECOND);
        // A clock that was ahead by a day and two seconds, until the time server answered.
        let back = -signed(day + 2 * SECOND);
        assert_eq!(clock.correct(DAWN + SECOND, 3 * SECOND), Some(back));
        assert_eq!(clock.at(4 * SECOND), DAWN + 2 * SECOND);
        assert_eq!(clock.correct(DAWN + 3 * SECOND, 5 * SECOND), None);
        assert_eq!((clock.last_step().unwrap().0, clock.steps.load(Ordering::Relaxed)), (back, 2));
    }

    #[test]
    fn a_machine_that_starts_in_1970_is_followed_into_the_present_and_back() {
        let clock = clock_at(0);
        assert_eq!(clock.correct(DAWN, 100 * SECOND), Some(signed(DAWN) - signed(100 * SECOND)));
        assert_eq!(clock.at(101 * SECOND), DAWN + SECOND);
        clock.correct(0, 102 * SECOND);
        assert_eq!((clock.at(102 * SECOND), clock.at(0)), (0, 0));
        assert_eq!(clock.at(103 * SECOND), SECOND);
    }

    #[test]
    fn the_time_now_is_the_wall_clocks() {
        let clock = SystemClock::new();
        assert!(clock.now().abs_diff(wall()) < 60 * SECOND);
        clock.correct(DAWN, clock.monotonic());
        assert!(clock.now() >= DAWN && clock.now().abs_diff(DAWN) < 60 * SECOND);
    }

    #[test]
    fn a_manual_clock_steps_without_time_passing() {
        let clock = ManualClock::new(DAWN);
        clock.advance(SECOND);
        let passed = clock.monotonic();
        clock.step(-signed(5 * SECOND));
        assert_eq!((clock.now(), clock.monotonic()), (DAWN - 4 * SECOND, passed));
        clock.step(signed(9 * SECOND));
        clock.advance(SECOND);
        assert_eq!((clock.now(), clock.monotonic()), (DAWN + 6 * SECOND, passed + SECOND));
    }

    proptest! {
        /// Whatever the wall clock does, after a reading the two are not further apart than the
        /// tolerance; and what is returned is how far the time moved.
        #[test]
        fn a_reading_leaves_a_small_difference(
            readings in prop::collection::vec((0..10 * SECOND, 0..2 * DAWN), 1..50)
        ) {
            let (clock, mut monotonic) = (clock_at(DAWN), 0);
            for (passed, wall) in readings {
                monotonic += passed;
                let before = clock.at(monotonic);
                let step = clock.correct(wall, monotonic).unwrap_or(0);
                prop_assert_eq!(clock.at(monotonic), before.saturating_add_signed(step));
                prop_assert!(clock.at(monotonic).abs_diff(wall) <= TOLERANCE);
            }
        }

        /// A clock whose rate is adjusted by up to 500 ppm moves the time once in 180 s at most,
        /// though each reading is late by some milliseconds.
        #[test]
        fn slewing_makes_no_jitter(
            ppm in -500..=500i64,
            late in prop::collection::vec(0..MAX_READING, 600)
        ) {
            let clock = clock_at(DAWN);
            let mut steps = 0;
            for (second, late) in (1..).zip(late) {
                let passed = second * SECOND;
                let slewed = DAWN.saturating_add_signed(signed(passed) / 1_000_000 * ppm) + passed;
                steps += usize::from(clock.correct(slewed + late, passed).is_some());
            }
            prop_assert!(steps <= 3, "{steps}");
        }
    }
}
