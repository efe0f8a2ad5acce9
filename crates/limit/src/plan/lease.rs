//! Hits that are charged before they are asked for, and used later.

use super::Plan;
use crate::{Limit, Micros};

/// Returns whether hits may be charged to `limits` early: all of them count by windows, so that it does not
/// matter when within a window they are charged, and whatever else they count and report stays the same.
pub(super) fn can_lease(limits: &[Limit]) -> bool {
    let several = limits.len() > 1;
    limits.iter().all(|limit| {
        let charges_more = several && limit.charge_denied;
        !limit.shadow_mode && !charges_more && limit.algorithm.window_end(0).is_some()
    })
}

impl Plan {
    /// Returns the plan whose hits are charged only when they are asked for.
    pub fn without_leases(self) -> Plan {
        Plan { can_lease: false, ..self }
    }

    /// Returns whether hits may be charged early, to use them until the [end](Self::window_end) of the window.
    pub fn can_lease(&self) -> bool {
        self.can_lease
    }

    /// Returns the end of the earliest window, or sub-window, of `t`: hits that are charged at `t` count for
    /// every request until then. `t` where some limit does not count by windows.
    pub fn window_end(&self, t: Micros) -> Micros {
        let ends = self.limits.iter().map(|limit| limit.algorithm.window_end(t).unwrap_or(t));
        ends.min().unwrap_or(t)
    }
}

#[cfg(test)]
mod tests {
    use crate::{BucketedWindow, Gcra, Limit, Plan, SECOND, SlidingWindow, Unit};

    fn limit(algorithm: impl Into<crate::Algorithm>) -> Limit {
        let minute = Limit::fixed_window(5, Unit::Minute, 1).unwrap();
        Limit { algorithm: algorithm.into(), charge_denied: false, ..minute }
    }

    fn sliding() -> Limit {
        limit(SlidingWindow { n: 5, period: 60 * SECOND })
    }

    #[test]
    fn windows_can_be_leased_until_the_earliest_ends() {
        let hour = Limit::fixed_window(5, Unit::Hour, 1).unwrap();
        let ring = limit(BucketedWindow { n: 5, period: 60 * SECOND, buckets: 7 });
        let hour_alone = Plan::new(vec![hour.clone()]);
        assert!(hour.charge_denied && hour_alone.can_lease());
        assert_eq!(hour_alone.window_end(1), 3_600 * SECOND);
        let hour = Limit { charge_denied: false, ..hour };
        let three = Plan::new(vec![hour, sliding(), ring]);
        assert!(three.can_lease() && !three.clone().without_leases().can_lease());
        let span = (60 * SECOND).div_ceil(7);
        assert_eq!(three.window_end(0), span);
        assert_eq!(three.window_end(span), 2 * span);
        assert_eq!(three.window_end(59 * SECOND), 60 * SECOND);
        assert_eq!(three.window_end(60 * SECOND), 7 * span);
        assert_eq!(three.window_end(7 * span), 8 * span);
    }

    #[test]
    fn other_plans_cannot_be_leased() {
        let hour = Limit::fixed_window(5, Unit::Hour, 1).unwrap();
        let gcra = limit(Gcra::new(5, 60 * SECOND, 5, 0).unwrap());
        for limits in [
            vec![gcra],
            vec![hour, sliding()],
            vec![Limit { shadow_mode: true, ..sliding() }, sliding()],
        ] {
            assert!(!Plan::new(limits).can_lease());
        }
    }
}
