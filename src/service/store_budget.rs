//! The store's budget: how much time the store has for one request.

use std::time::Duration;

/// The part of a caller's timeout that is kept for the way back and for scheduling delays.
const RETURN_MARGIN: Duration = Duration::from_millis(3);

/// The longest budget, however long the caller's timeout.
const MAX_BUDGET: Duration = Duration::from_millis(50);

/// The budget of a caller without a timeout. Envoy times out after 20 ms by default.
const DEFAULT_BUDGET: Duration = Duration::from_millis(15);

/// The store is asked even if a caller's timeout leaves no time: otherwise a caller could provoke
/// the failure policy. The answer may then arrive after the caller's deadline.
const MIN_BUDGET: Duration = Duration::from_millis(1);

/// Below this timeout, a late answer of the store is attributed to the caller.
const SHORT_TIMEOUT: Duration = Duration::from_millis(10);

/// Returns the budget of a request whose caller sent `timeout`. `cap` is the setting
/// `store.budget`; none means `auto`.
pub(super) fn store_budget(cap: Option<Duration>, timeout: Option<Duration>) -> Duration {
    let budget = match timeout {
        None => cap.unwrap_or(DEFAULT_BUDGET),
        Some(timeout) => cap.unwrap_or(MAX_BUDGET).min(timeout.saturating_sub(RETURN_MARGIN)),
    };
    budget.max(MIN_BUDGET)
}

/// Returns the budget below which a late answer of the store is caused by the caller's short
/// timeout. The setting alone never leaves less.
pub fn caller_deadline_below(cap: Option<Duration>) -> Duration {
    store_budget(cap, Some(SHORT_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_budget_follows_from_the_callers_timeout() {
        let cases = [(1_000, 50), (53, 50), (52, 49), (20, 17), (5, 2), (4, 1), (3, 1), (0, 1)];
        for (timeout, expected) in cases {
            assert_eq!(store_budget(None, Some(ms(timeout))), ms(expected), "{timeout}");
        }
        assert_eq!(store_budget(None, None), ms(15));
    }

    #[test]
    fn the_setting_caps_the_budget() {
        for (timeout, expected) in [(100, 8), (11, 8), (10, 7), (0, 1)] {
            assert_eq!(store_budget(Some(ms(8)), Some(ms(timeout))), ms(expected), "{timeout}");
        }
        assert_eq!(store_budget(Some(ms(8)), None), ms(8));
        assert_eq!(store_budget(Some(ms(60)), None), ms(60));
        assert_eq!(store_budget(Some(ms(60)), Some(ms(1_000))), ms(60));
        assert_eq!(store_budget(Some(ms(0)), None), ms(1));
    }

    #[test]
    fn only_a_timeout_below_10_ms_is_the_callers_deadline() {
        for cap in [None, Some(ms(0)), Some(ms(5)), Some(ms(60))] {
            let below = caller_deadline_below(cap);
            assert!(store_budget(cap, None) >= below, "{cap:?}");
            for timeout in 10..100 {
                assert!(store_budget(cap, Some(ms(timeout))) >= below, "{cap:?} {timeout}");
            }
        }
        for timeout in 0..10 {
            assert!(
                store_budget(None, Some(ms(timeout))) < caller_deadline_below(None),
                "{timeout}"
            );
        }
    }
}
