//! The clock by which operators' controls expire, one for all replicas; and times in JSON, as RFC 3339 writes them.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use weir_common::clock::{Clock, Monotonic, SystemClock};
use weir_limit::Micros;

/// Stands for the offset of a store whose time was never read.
const UNKNOWN: i64 = i64::MIN;

trait Time: Clock + Monotonic {}

impl<C: Clock + Monotonic> Time for C {}

/// The time of the shared store as last read, carried on by the monotonic clock; this process's own until then.
#[derive(Clone, Debug)]
pub struct ControlClock {
    clock: Arc<dyn Time>,
    /// The store's time minus the monotonic time, or [`UNKNOWN`].
    offset: Arc<AtomicI64>,
}

impl ControlClock {
    /// Returns a clock whose difference to the store's clock is not known yet.
    pub fn new(clock: Arc<impl Clock + Monotonic>) -> ControlClock {
        ControlClock { clock, offset: Arc::new(AtomicI64::new(UNKNOWN)) }
    }

    /// Returns microseconds since the Unix epoch.
    pub fn now(&self) -> Micros {
        match self.offset.load(Ordering::Relaxed) {
            UNKNOWN => self.clock.now(),
            offset => self.clock.monotonic().saturating_add_signed(offset),
        }
    }

    /// Returns whether the time of the store was read.
    pub(super) fn follows_store(&self) -> bool {
        self.offset.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Follows the time of the store, which was read a moment ago.
    pub(super) fn set_store_time(&self, time: Micros) {
        let offset = signed(time) - signed(self.clock.monotonic());
        self.offset.store(offset, Ordering::Relaxed);
    }
}

fn signed(time: Micros) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

impl Default for ControlClock {
    fn default() -> ControlClock {
        ControlClock::new(Arc::new(SystemClock::new()))
    }
}

/// Returns a time as text. A later one than RFC 3339 can write becomes the last.
pub fn text(time: Micros) -> String {
    Timestamp::from_microsecond(signed(time)).unwrap_or(Timestamp::MAX).to_string()
}

/// Reads a time; one before the epoch is the epoch.
pub fn read(text: &str) -> Option<Micros> {
    let time = text.parse::<Timestamp>().ok()?;
    Some(Micros::try_from(time.as_microsecond()).unwrap_or(0))
}

pub fn serialize<T: Copy + Into<Option<Micros>>, S: Serializer>(
    time: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    (*time).into().map(text).serialize(serializer)
}

pub fn deserialize<'de, T: From<Micros> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(T::default()) };
    read(&text).map(T::from).ok_or_else(|| D::Error::custom(format!("not a time: {text:?}")))
}
