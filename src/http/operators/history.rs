//! The history for `/v1/history`: requests, hits and latencies of the last hour and of the last five minutes.
//!
//! A thread with a low priority samples counters once a second, which serving threads count for metrics
//! anyway. What a sample adds belongs to the second that has just ended. The thread also adds what has happened
//! to the change log.
//!
//! **Bounded.** [`MAX_BYTES`], whatever is counted: the rings have a fixed size, and a rule that becomes busy
//! takes the slot of one that is not.
//!
//! - `ring`: the steps of one length, and what is shown of durations
//! - `busy`: which rules have a time series
//! - `recorder`: the thread, and what it compares

mod busy;
pub(super) mod recorder;
mod ring;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use parking_lot::Mutex;

use self::busy::{BusyRules, Counters};
use self::ring::{ALL, Cell, Counts, ERRORS, OVER, Ring, WITHIN, WOULD_BE_OVER, delta, grown};
use weir_api::messages::{HistoryAnswer, HistoryRule, HistorySeries};
use weir_common::metrics::HistogramSnapshot;
use weir_controls::time_text;
use weir_limit::{Micros, SECOND};

/// The seconds of a step of either length, and how many are kept.
const STEPS: [(u64, usize); 2] = [(1, 300), (10, 360)];

/// Seconds without a sample, after which what is missing is shown as unknown.
const MAX_LATE: u64 = 2;

/// The most memory that a history takes.
const MAX_BYTES: usize = 4 << 20;

const _: () =
    assert!(Ring::bytes(STEPS[0].1) + Ring::bytes(STEPS[1].1) + BusyRules::BYTES <= MAX_BYTES);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepLength {
    Second,
    TenSeconds,
}

/// What is sampled: counters since the start.
struct Sample<'a, R> {
    /// The time of the sample, in microseconds since 1970.
    now: Micros,
    /// Whether the rules are another set than those of the last sample.
    is_new_set: bool,
    /// The counts of all rules. Hits within the limit include those that only a shadow mode lets pass.
    all: Counts,
    rules: &'a R,
    /// Whether the settings let every request pass.
    is_shadow: bool,
    /// The durations of all decisions, in seconds.
    durations: &'a HistogramSnapshot,
}

/// What was counted. Its memory is allocated at the start.
#[derive(Debug)]
pub struct History(Mutex<HistoryState>);

#[derive(Debug)]
struct HistoryState {
    rings: [Ring; 2],
    busy: BusyRules,
    all: Counts,
    durations: Vec<u64>,
    samples: u64,
    /// The second of the last sample.
    last: u64,
}

impl Default for History {
    fn default() -> History {
        History(Mutex::new(HistoryState {
            rings: STEPS.map(|(seconds, kept)| Ring::new(seconds, kept)),
            busy: BusyRules::new(),
            all: [0; 4],
            durations: Vec::new(),
            samples: 0,
            last: 0,
        }))
    }
}

impl History {
    fn sample(&self, sample: &Sample<'_, impl Counters>) {
        let state = &mut *self.0.lock();
        let Sample { now, is_new_set, all, rules, is_shadow, durations } = *sample;
        let second = (now / SECOND).saturating_sub(1);
        let elapsed = second.saturating_sub(state.last);
        state.last = second;
        state.samples += 1;
        if is_new_set {
            state.busy.replace(rules, state.samples, is_shadow);
        }
        let mut all = grown(&mut state.all, all);
        // Of what has grown: the counters are not read at the same time.
        all[WITHIN] = all[WITHIN].saturating_sub(all[WOULD_BE_OVER]);
        state.durations.resize(durations.counts.len(), 0);
        let pairs = state.durations.iter_mut().zip(&durations.counts);
        let took: Vec<u64> =
            pairs.map(|(before, now)| delta(std::mem::replace(before, *now), *now)).collect();
        for ring in &mut state.rings {
            ring.start(second, state.samples);
            ring.add(second, ALL, all);
            ring.add_durations(second, &durations.bounds, &took);
        }
        let rings = &mut state.rings;
        state.busy.count(rules, elapsed, is_shadow, |slot, counts| {
            rings.iter_mut().for_each(|ring| ring.add(second, slot + 1, counts));
        });
        // At the end of the longer steps: a rule that takes a slot then has all of the next one.
        if (second + 1).is_multiple_of(state.rings[1].seconds) {
            state.busy.assign(rules, state.samples, is_shadow);
        }
    }

    /// Returns the history until `now`, without changes and denials; that of one rule, by its domain and path, if
    /// one is given.
    pub fn read(&self, now: Micros, step: StepLength, rule: Option<(&str, &str)>) -> HistoryAnswer {
        let state = &*self.0.lock();
        let ring = &state.rings[step as usize];
        let now = now / SECOND;
        let is_late = !(state.last + 1..=state.last + 1 + MAX_LATE).contains(&now);
        let end = if is_late { now } else { state.last + 1 };
        let until = end - end % ring.seconds;
        let from = until.saturating_sub(ring.kept as u64 * ring.seconds);
        let mut series = match rule {
            None => columns(ring.cells(end, ALL, 0)),
            Some((domain, rule)) => {
                let mut slots = state.busy.slots();
                let slot = slots.find(|(_, slot)| (&*slot.domain, &*slot.rule) == (domain, rule));
                match slot {
                    Some((number, slot)) => columns(ring.cells(end, number + 1, slot.since)),
                    None => columns(ring.steps(end).map(|_| None)),
                }
            }
        };
        if rule.is_none() {
            // To a microsecond.
            let rounded = |ms: f32| Some((ms * 1e3).round() / 1e3).filter(|ms| ms.is_finite());
            let steps = || ring.steps(end);
            series.p50_ms = Some(steps().map(|step| rounded(step?.p50)).collect());
            series.p99_ms = Some(steps().map(|step| rounded(step?.p99)).collect());
        }
        HistoryAnswer {
            step_seconds: ring.seconds,
            from: time_text(from.saturating_mul(SECOND)),
            until: time_text(until.saturating_mul(SECOND)),
            series,
            rules: rule.is_none().then(|| state.rules(ring, end)),
            events: Vec::new(),
            denials: Vec::new(),
        }
    }
}

impl HistoryState {
    /// Returns the rules that were asked for in the steps before the second `end`, the busiest first.
    fn rules(&self, ring: &Ring, end: u64) -> Vec<HistoryRule> {
        let rules = self.busy.slots().map(|(number, slot)| {
            let mut sums = [0; 4];
            for cell in ring.cells(end, number + 1, slot.since).flatten() {
                sums.iter_mut().zip(cell).for_each(|(sum, count)| *sum += u64::from(*count));
            }
            let [within_limit, over_limit, would_be_over_limit, errors] = sums;
            let (domain, rule) = (slot.domain.to_string(), slot.rule.to_string());
            HistoryRule { domain, rule, within_limit, over_limit, would_be_over_limit, errors }
        });
        let mut rules: Vec<_> = rules.filter(|rule| rule.hits() > 0).collect();
        rules.sort_by_key(|rule| Reverse(rule.hits()));
        rules
    }
}

fn columns<'a>(cells: impl Iterator<Item = Option<&'a Cell>>) -> HistorySeries {
    let mut series = HistorySeries::default();
    for cell in cells {
        let count = |at: usize| cell.map(|cell| cell[at]);
        series.within_limit.push(count(WITHIN));
        series.over_limit.push(count(OVER));
        series.would_be_over_limit.push(count(WOULD_BE_OVER));
        series.errors.push(count(ERRORS));
    }
    series
}
