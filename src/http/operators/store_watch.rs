//! Decides when failed charges (calls of the store that count hits) are a problem that operators should see; also
//! controls (blocks, allows and limits by operators) that are not shared with other replicas, and unknown domains.
//!
//! `history::recorder` calls it once a second. A problem is raised when its cause has lasted for [`RAISE_AFTER`], and
//! cleared when the cause has been gone for [`CLEAR_AFTER`], so that it does not flap.

use std::collections::VecDeque;
use std::iter::zip;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use super::store_state::StoreState;
use weir_common::named_enum;
use weir_limit::Micros;
use weir_store::{FailureStatus, StoreError};

/// The time over which failed charges are counted.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

const RAISE_AFTER: Duration = Duration::from_secs(3);
const CLEAR_AFTER: Duration = Duration::from_secs(10);

/// The fewest failed charges in a window that are a problem.
const MIN_FAILED: u64 = 2;

/// The share of failed charges from which a problem is critical, in percent.
const CRITICAL_PERCENT: u64 = 1;

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub(super) enum Severity, name {
        /// Few requests notice it, or none yet.
        Warning = "warning",
        Critical = "critical",
    }
}

/// What is known about the store and its table of controls, and about domains without rules.
#[derive(Debug, Default)]
pub struct StoreWatch(Mutex<Watched>);

/// A moment, by a clock that never goes back and by that of the service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub elapsed: Duration,
    pub at: Micros,
}

#[derive(Debug, Default)]
struct Watched {
    /// Totals of the last looks, the oldest first.
    totals: VecDeque<(Duration, FailureStatus)>,
    any: Alarm,
    many: Alarm,
    last: Counted,
    unshared: Alarm,
    share_error: String,
    /// How many descriptors named each domain without rules, in order.
    unknown: Vec<(Arc<str>, u64)>,
    /// The domain of the newest one, and when that was noticed.
    unknown_domain: Option<(Arc<str>, Duration)>,
    is_unknown: Alarm,
}

/// The charges of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub charges: u64,
    /// Those that failed because of the store, and not of their callers' deadlines.
    pub failed: u64,
    /// Why most of them failed.
    pub reason: Option<StoreError>,
    pub policies: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failing {
    pub severity: Severity,
    pub since: Micros,
    /// The last window that was a problem.
    pub counted: Counted,
    /// Whether the problem still has a cause.
    pub lasts: bool,
}

/// Follows a condition, late in both directions.
#[derive(Debug, Default)]
struct Alarm {
    /// When the condition began, if it is raised.
    raised: Option<Micros>,
    /// Since when the condition is not what the alarm says.
    turned: Option<Moment>,
}

impl Alarm {
    /// Notes whether the condition holds. Returns whether the alarm is raised.
    fn note(&mut self, now: Moment, holds: bool) -> bool {
        if holds == self.raised.is_some() {
            self.turned = None;
            return holds;
        }
        let turned = *self.turned.get_or_insert(now);
        let lateness = if holds { RAISE_AFTER } else { CLEAR_AFTER };
        if now.elapsed.saturating_sub(turned.elapsed) >= lateness {
            self.raised = holds.then_some(turned.at);
            self.turned = None;
        }
        self.raised.is_some()
    }

    /// Returns whether the condition held when it was noted last.
    fn holds(&self) -> bool {
        self.raised.is_some() != self.turned.is_some()
    }
}

impl StoreWatch {
    /// Looks at the store, at why controls are not shared, and at the counts of domains without rules.
    pub(super) fn look(
        &self,
        now: Moment,
        store: &StoreState,
        share_error: Option<String>,
        unknown: Vec<(Arc<str>, u64)>,
    ) {
        let mut watched = self.0.lock();
        let changed = unknown.iter().find(|count| watched.unknown.binary_search(count).is_err());
        if let Some(domain) = changed.map(|(domain, _)| domain.clone()) {
            watched.unknown_domain = Some((domain, now.elapsed));
        }
        watched.unknown = unknown;
        let newest = watched.unknown_domain.as_ref();
        let is_recent = newest.is_some_and(|(_, at)| now.elapsed.saturating_sub(*at) < WINDOW * 6);
        watched.is_unknown.note(now, is_recent);
        watched.unshared.note(now, share_error.is_some());
        watched.share_error = share_error.unwrap_or(std::mem::take(&mut watched.share_error));
        if let Some(failures) = &store.status.failures {
            watched.note(now, failures, !store.is_connected);
        }
    }

    /// Returns how the store fails; none if that is no problem.
    pub(super) fn failing(&self) -> Option<Failing> {
        let Watched { any, many, last, .. } = &*self.0.lock();
        let since = any.raised?;
        let severity = if many.raised.is_some() { Severity::Critical } else { Severity::Warning };
        Some(Failing { severity, since, counted: last.clone(), lasts: any.holds() })
    }

    /// Returns a domain without rules that requests name, and since when they name one.
    pub(super) fn unknown_domain(&self) -> Option<(Arc<str>, Micros)> {
        let watched = self.0.lock();
        Some((watched.unknown_domain.as_ref()?.0.clone(), watched.is_unknown.raised?))
    }

    /// Returns since when controls are not shared, and the last error; none if that is no problem.
    pub(super) fn unshared(&self) -> Option<(Micros, String)> {
        let watched = self.0.lock();
        Some((watched.unshared.raised?, watched.share_error.clone()))
    }
}

impl Watched {
    /// Notes the totals of the store, and whether it cannot be reached.
    fn note(&mut self, now: Moment, totals: &FailureStatus, is_down: bool) {
        self.totals.push_back((now.elapsed, totals.clone()));
        // One that is older than the window stays, to count from.
        let is_out =
            |(at, _): &(Duration, FailureStatus)| now.elapsed.saturating_sub(*at) >= WINDOW;
        while self.totals.get(1).is_some_and(is_out) {
            self.totals.pop_front();
        }
        let Some((_, before)) = self.totals.front() else { return };
        let counted = Counted::between(before, totals);
        let fails = counted.failed >= MIN_FAILED;
        let is_much = counted.failed * 100 >= counted.charges * CRITICAL_PERCENT;
        if fails || is_down {
            self.last = counted;
        }
        self.any.note(now, fails || is_down);
        self.many.note(now, fails && is_much || is_down);
    }
}

impl Counted {
    fn between(before: &FailureStatus, now: &FailureStatus) -> Counted {
        let failed = zip(&before.failed, &now.failed)
            .map(|((kind, before), (_, now))| (*kind, now.saturating_sub(*before)))
            .filter(|(kind, count)| *count > 0 && *kind != StoreError::CallerDeadline);
        let policies = zip(&before.degraded, &now.degraded);
        let policies = policies.filter(|((_, before), (_, now))| now > before);
        Counted {
            charges: now.charges.saturating_sub(before.charges),
            failed: failed.clone().map(|(_, count)| count).sum(),
            reason: failed.max_by_key(|(_, count)| *count).map(|(kind, _)| kind),
            policies: policies.map(|((policy, _), _)| *policy).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_limit::SECOND;

    const START: Micros = 1_700_000_000 * SECOND;

    /// A store that is looked at once a second.
    struct Bench {
        watched: StoreWatch,
        totals: FailureStatus,
        seconds: u64,
    }

    fn bench() -> Bench {
        let totals = FailureStatus {
            on_failure: "error",
            charges: 0,
            failed: StoreError::ALL.map(|kind| (kind, 0)),
            degraded: vec![("error", 0), ("allow", 0)],
        };
        Bench { watched: StoreWatch::default(), totals, seconds: 0 }
    }

    impl Bench {
        /// Lets a second pass in which charges fail. Returns whether that is a problem.
        fn second(&mut self, charges: u64, failed: u64) -> Option<Severity> {
            self.second_of(charges, failed, StoreError::TimedOut, false)
        }

        fn second_of(
            &mut self,
            charges: u64,
            failed: u64,
            kind: StoreError,
            is_down: bool,
        ) -> Option<Severity> {
            self.totals.charges += charges;
            self.totals.degraded[0].1 += failed;
            self.totals.failed.iter_mut().filter(|it| it.0 == kind).for_each(|it| it.1 += failed);
            self.seconds += 1;
            let at = START + self.seconds * SECOND;
            let now = Moment { elapsed: Duration::from_secs(self.seconds), at };
            self.watched.0.lock().note(now, &self.totals, is_down);
            self.watched.failing().map(|failing| failing.severity)
        }

        /// Returns after how many such seconds the problem is another one.
        fn seconds_until(&mut self, wanted: Option<Severity>, charges: u64, failed: u64) -> u64 {
            (1..100).find(|_| self.second(charges, failed) == wanted).unwrap()
        }
    }

    #[test]
    fn a_single_failed_charge_is_no_problem_and_two_are_a_warning_below_one_percent() {
        let mut bench = bench();
        bench.second(54, 0);
        bench.second(54, 1);
        assert!((0..30).all(|_| bench.second(54, 0).is_none()));
        bench.second(54, 2);
        assert_eq!(bench.second(54, 0), None);
        assert_eq!(bench.second(54, 0), None);
        assert_eq!(bench.second(54, 0), Some(Severity::Warning));
        let Failing { since, counted, lasts, .. } = bench.watched.failing().unwrap();
        assert_eq!(since, START + 33 * SECOND);
        let policies = vec!["error"];
        let reason = Some(StoreError::TimedOut);
        assert_eq!(counted, Counted { charges: 540, failed: 2, reason, policies });
        assert!(lasts);
    }

    #[test]
    fn a_problem_is_critical_from_one_percent_on() {
        for (failed, wanted) in [(1, Severity::Critical), (0, Severity::Warning)] {
            let mut bench = bench();
            bench.second(100, 0);
            bench.second(100, 1);
            bench.second(100, 1);
            // Less than one in a hundred as soon as the window has more than 200 charges.
            let last = (0..9).map(|_| bench.second(100, failed)).last().flatten();
            assert_eq!(last, Some(wanted));
        }
    }

    #[test]
    fn it_is_raised_after_three_seconds_and_cleared_after_ten() {
        let mut bench = bench();
        bench.second(50, 0);
        assert_eq!(bench.seconds_until(Some(Severity::Critical), 50, 48), 4);
        assert_eq!(bench.seconds_until(Some(Severity::Critical), 50, 0), 1);
        // Twenty in all: ten until no failure is in the window, and ten more.
        assert_eq!(bench.seconds_until(None, 50, 0), 19);
    }

    #[test]
    fn what_comes_and_goes_is_one_problem() {
        let mut bench = bench();
        bench.seconds_until(Some(Severity::Critical), 50, 10);
        let mut seen = Vec::new();
        for _ in 0..20 {
            (0..15).for_each(|_| seen.push(bench.second(50, 0)));
            (0..3).for_each(|_| seen.push(bench.second(50, 10)));
        }
        assert!(seen.iter().all(|severity| *severity == Some(Severity::Critical)), "{seen:?}");
        assert!(bench.watched.failing().unwrap().lasts);
        (0..12).for_each(|_| _ = bench.second(50, 0));
        let failing = bench.watched.failing().unwrap();
        assert!(!failing.lasts && failing.counted.failed > 0, "{failing:?}");
    }

    #[test]
    fn a_store_out_of_reach_is_critical_without_a_charge() {
        let mut bench = bench();
        let mut down = || bench.second_of(0, 0, StoreError::Unavailable, true);
        assert_eq!([down(), down(), down()], [None; 3]);
        assert_eq!(down(), Some(Severity::Critical));
        assert_eq!(bench.watched.failing().unwrap().counted, Counted::default());
        assert_eq!(bench.seconds_until(None, 0, 0), 11);
    }

    #[test]
    fn a_domain_without_rules_is_a_problem_until_a_minute_after_the_last_request() {
        let (watch, status) = <(StoreWatch, weir_store::StoreStatus)>::default();
        let store = StoreState { is_connected: true, status };
        let look = |second: u64, of_shop: u64| {
            let now = Moment { elapsed: Duration::from_secs(second), at: START + second * SECOND };
            watch.look(now, &store, None, vec![("cart".into(), 5), ("shop".into(), of_shop)]);
            watch.unknown_domain()
        };
        assert!((0..3).all(|second| look(second, second).is_none()));
        assert_eq!(look(3, 3), Some(("shop".into(), START)));
        assert!((4..73).all(|second| look(second, 3).is_some()));
        assert_eq!(look(73, 3), None);
    }

    #[test]
    fn deadlines_of_callers_are_not_failures_of_the_store() {
        let mut bench = bench();
        let mut late = || bench.second_of(50, 50, StoreError::CallerDeadline, false);
        assert!((0..20).all(|_| late().is_none()));
    }
}
