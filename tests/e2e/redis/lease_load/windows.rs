//! What the windows of a limit admitted.
//!
//! An admission is *surely* in a window if it was sent and answered within it, and *may* be in it if the
//! window has a part of the time between. Clients and Redis have one clock.

use std::collections::HashMap;
use std::ops::Range;

use super::clients::{HOT, Micros, Sample, name_of};

/// A limit, as far as it is about windows.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub name: &'static str,
    /// The index of its rule.
    pub rule: u8,
    pub n: u64,
    /// The length of a window or sub-window.
    pub step: Micros,
    /// How many sub-windows count besides the current one.
    pub buckets: u64,
    /// Whether it estimates the hits of the last period from two windows.
    pub estimates: bool,
}

/// Hits of a value in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    /// Surely admitted in it.
    sure: u64,
    /// Perhaps admitted in it.
    may: u64,
    /// Surely asked for in it one by one: who asks for many may be denied while a few are left.
    asked: u64,
}

/// What a limit admitted.
#[derive(Debug)]
pub struct Report {
    /// Windows that surely admitted more than their bound.
    pub over: Vec<String>,
    /// The hits that may have been admitted in each window of the hot value that was overloaded from its start to its
    /// end, at most n.
    pub overloaded: Vec<u64>,
    pub n: u64,
}

impl Limit {
    /// Counts what each window of each value admitted, and compares it with a bound: the most hits that a window with
    /// this span may have.
    pub fn examine(&self, samples: &[Sample], bound: impl Fn(Range<Micros>) -> u64) -> Report {
        let samples: Vec<Sample> =
            samples.iter().copied().filter(|sample| sample.rule == self.rule).collect();
        let (Some(start), Some(end)) = (
            samples.iter().map(|sample| sample.sent).min(),
            samples.iter().map(|sample| sample.answered).max(),
        ) else {
            panic!("{}: no answers", self.name);
        };
        let windows = self.windows(&samples);
        let (mut over, mut overloaded) = (Vec::new(), Vec::new());
        for ((value, first), hits) in &windows {
            let span = self.span(*first);
            let most = bound(span.clone());
            if hits.sure > most {
                let value = name_of(*value);
                let text = format!("{} {value} {span:?}: {hits:?}, at most {most}", self.name);
                over.push(text);
            }
            let whole = span.start >= start && span.end <= end;
            if *value == HOT && whole && hits.asked * 10 > self.n * 13 {
                overloaded.push(hits.may.min(self.n));
            }
        }
        if self.estimates {
            over.extend(self.beyond_estimate(&samples, &windows, bound));
        }
        overloaded.sort_unstable();
        Report { over, overloaded, n: self.n }
    }

    /// The time of the window, or of the sub-windows that count together, whose first has this number.
    fn span(&self, first: u64) -> Range<Micros> {
        first * self.step..(first + self.buckets + 1) * self.step
    }

    fn windows(&self, samples: &[Sample]) -> HashMap<(u16, u64), Hits> {
        let mut windows = HashMap::<_, Hits>::new();
        for sample in samples {
            let hits = u64::from(sample.hits);
            let (from, to) = (sample.sent / self.step, sample.answered / self.step);
            for first in from - self.buckets..=to {
                let window = windows.entry((sample.value, first)).or_default();
                let sure = first <= from && to <= first + self.buckets;
                window.asked += u64::from(sure && hits == 1);
                if sample.admitted {
                    window.sure += if sure { hits } else { 0 };
                    window.may += hits;
                }
            }
        }
        windows
    }

    /// Finds moments at which more was admitted than the estimate of a sliding window allows.
    ///
    /// The last of the hits that were answered by a moment was charged before it. Then the window before weighed at
    /// least as much, and had at least the hits that surely were in it.
    fn beyond_estimate(
        &self,
        samples: &[Sample],
        windows: &HashMap<(u16, u64), Hits>,
        bound: impl Fn(Range<Micros>) -> u64,
    ) -> Vec<String> {
        let mut sure = HashMap::<_, Vec<&Sample>>::new();
        for sample in samples.iter().filter(|sample| sample.admitted) {
            let window = sample.sent / self.step;
            if window == sample.answered / self.step {
                sure.entry((sample.value, window)).or_default().push(sample);
            }
        }
        let mut over = Vec::new();
        for ((value, window), mut samples) in sure {
            let before = windows.get(&(value, window - 1)).map_or(0, |hits| hits.sure);
            let (start, end) = (window * self.step, (window + 1) * self.step);
            let most = bound(start - self.step..end);
            samples.sort_unstable_by_key(|sample| sample.answered);
            let mut sum = 0;
            for sample in samples {
                sum += u64::from(sample.hits);
                let weighs = before as f64 * (end - sample.answered) as f64 / self.step as f64;
                if sum as f64 > most as f64 - weighs + 1e-6 {
                    let (name, value) = (self.name, name_of(value));
                    let at = sample.answered - start;
                    over.push(format!("{name} {value} {start} + {at}: {sum} + {weighs} > {most}"));
                    break;
                }
            }
        }
        over
    }
}

impl Report {
    /// The smallest part of n that an overloaded window may have admitted, and that of all of them.
    pub fn parts(&self) -> Option<(f64, f64)> {
        let least = *self.overloaded.first()?;
        let sum = self.overloaded.iter().sum::<u64>();
        let n = self.n as f64;
        Some((least as f64 / n, sum as f64 / n / self.overloaded.len() as f64))
    }
}

#[test]
fn windows_count_what_is_surely_or_perhaps_in_them() {
    let sample = |sent, answered, hits, admitted| Sample {
        rule: 0,
        value: HOT,
        replica: 0,
        hits,
        sent,
        answered,
        admitted,
    };
    let limit = Limit { name: "test", rule: 0, n: 4, step: 10, buckets: 0, estimates: false };
    let hits = [sample(100, 101, 4, true), sample(109, 110, 1, true), sample(112, 113, 1, false)];
    let report = limit.examine(&hits, |_| 4);
    assert_eq!((report.over.len(), report.overloaded), (0, vec![]));
    let report = limit.examine(&[hits[0], sample(108, 109, 1, true)], |_| 4);
    assert_eq!(report.over.len(), 1, "{report:?}");
    // Asked for six of four one by one; the window is over when the last is answered.
    let asked = (0..6).map(|at| sample(100 + at, 101 + at, 1, at < 3));
    let report = limit.examine(&asked.chain([hits[2]]).collect::<Vec<_>>(), |_| 4);
    assert_eq!(report.overloaded, [3]);
    // Two steps count together.
    let ring = Limit { buckets: 1, ..limit };
    let both = [sample(101, 102, 3, true), sample(115, 116, 2, true)];
    assert_eq!(ring.examine(&both, |_| 4).over.len(), 1);
    assert_eq!(ring.examine(&[both[0], sample(121, 122, 2, true)], |_| 4).over.len(), 0);
    // At a half, of the four before two count.
    let sliding = Limit { estimates: true, ..limit };
    let before = sample(91, 92, 4, true);
    for (hits, over) in [(2, 0), (3, 1)] {
        let report = sliding.examine(&[before, sample(104, 105, hits, true)], |_| 4);
        assert_eq!(report.over.len(), over, "{report:?}");
    }
}
