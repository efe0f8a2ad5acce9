//! Limits in words.

use std::fmt;

use super::Limit;

/// `300 per 15 minutes`; `1 per hour, token_bucket of 10`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.requests_per_unit;
        match (self.unit, self.unit_multiplier) {
            (None, _) => write!(f, "{n} at once")?,
            (Some(unit), 1) => write!(f, "{n} per {}", unit.name())?,
            (Some(unit), multiplier) => write!(f, "{n} per {multiplier} {}s", unit.name())?,
        }
        self.algorithm.write_text(f)?;
        if self.shadow_mode { f.write_str(" (shadow)") } else { Ok(()) }
    }
}
