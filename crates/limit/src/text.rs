//! Limits in words.

use std::fmt;

use super::{Algorithm, Limit};

/// `300 per 15 minutes`; `1 per hour, token_bucket of 10`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.requests_per_unit;
        match (self.unit, self.unit_multiplier) {
            (None, _) => write!(f, "{n} at once")?,
            (Some(unit), 1) => write!(f, "{n} per {}", unit.name())?,
            (Some(unit), multiplier) => write!(f, "{n} per {multiplier} {}s", unit.name())?,
        }
        match &self.algorithm {
            Algorithm::FixedWindow(window) => {
                if let Some(calendar) = &window.calendar {
                    write!(f, " of the calendar, {}", calendar.zone())?;
                }
            }
            Algorithm::TokenBucket(bucket) => {
                let strict = if bucket.strict { "strict " } else { "" };
                write!(f, ", {strict}token_bucket of {}", bucket.capacity)?;
            }
            Algorithm::Gcra(gcra) => write!(f, ", gcra with a burst of {}", gcra.burst())?,
            other => write!(f, ", {}", other.name())?,
        }
        if self.shadow_mode { f.write_str(" (shadow)") } else { Ok(()) }
    }
}
