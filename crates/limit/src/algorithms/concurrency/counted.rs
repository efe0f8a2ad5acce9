//! Hits in flight without ids: a count, which is cleared after the timeout without traffic.

use super::in_flight::{Concurrency, InFlight, MAX_IN_FLIGHT};
use crate::algorithm::{Hits, HoldLevels, Levels, Verdict, wait};
use crate::saved;
use crate::time::Micros;

/// The number of hits in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub(super) count: u64,
    /// When something was last taken or released.
    pub(super) last: Micros,
}

impl Counted {
    fn expires(&self, limit: &Concurrency) -> Micros {
        self.last.saturating_add(limit.timeout)
    }
}

impl InFlight for Counted {
    fn advance(&mut self, limit: &Concurrency, now: Micros) {
        if self.last > now.saturating_add(limit.timeout) {
            self.last = now;
        }
        if self.expires(limit) <= now.max(self.last) {
            self.count = 0;
        }
    }

    fn verdict(&self, limit: &Concurrency, now: Micros, hits: Hits) -> Verdict {
        let (n, hits) = (u64::from(limit.n), u64::from(hits.count));
        let allowed = self.count + hits <= n;
        let retry_after = (!allowed && hits <= n).then(|| wait(self.expires(limit), now));
        Verdict { allowed, retry_after }
    }

    fn levels(&self, limit: &Concurrency, now: Micros) -> Levels {
        Levels {
            used: self.count,
            remaining: u64::from(limit.n).saturating_sub(self.count),
            reset_after: if self.count == 0 { 0 } else { wait(self.expires(limit), now) },
            empty: self.count == 0,
        }
    }

    fn room(&self, limit: &Concurrency, _hold: u64) -> u64 {
        u64::from(limit.n).saturating_sub(self.count)
    }

    fn charge(&mut self, now: Micros, hits: Hits) {
        self.last = now.max(self.last);
        self.count = (self.count + u64::from(hits.count)).min(MAX_IN_FLIGHT);
    }

    fn refund(&mut self, now: Micros, hits: Hits) {
        self.last = now.max(self.last);
        self.count = self.count.saturating_sub(hits.count.into());
    }

    fn holds(&self, limit: &Concurrency, now: Micros) -> HoldLevels {
        let expires_after = self.levels(limit, now).reset_after;
        HoldLevels { ids: None, hits: self.count, expires_after }
    }

    fn save(&self, out: &mut Vec<u8>) {
        saved::put(out, self.last);
        saved::put(out, 0);
        saved::put(out, self.count);
    }
}
