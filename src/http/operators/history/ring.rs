//! A ring buffer of the history: what was counted in each step of time (1 s or 10 s), of all requests and of each rule
//! with a slot (see `busy`).

use std::iter::zip;

use weir_common::metrics::quantile;

/// Four counters: within the limit, over it, what would be over it without a shadow mode, and errors. They count
/// requests, or the hits of one rule, since the start or since the last sample.
pub(super) type Counts = [u64; 4];

pub(super) const WITHIN: usize = 0;
pub(super) const OVER: usize = 1;
pub(super) const WOULD_BE_OVER: usize = 2;
pub(super) const ERRORS: usize = 3;

/// Returns how much a counter has grown. One that has gone back started over.
pub(super) fn delta(before: u64, now: u64) -> u64 {
    if now >= before { now - before } else { now }
}

/// The number of rules that have series.
pub(super) const SLOTS: usize = 200;

/// The columns of a step: that of all requests, and one for each slot.
pub(super) const COLUMNS: usize = SLOTS + 1;

/// The column of all requests. That of a slot is the number of the slot, from 1 on.
pub(super) const ALL: usize = 0;

/// What was counted in one step and column, in the order of [`Counts`].
pub(super) type Cell = [u32; 4];

/// Steps of one length. All memory is allocated at the start.
#[derive(Debug)]
pub(super) struct Ring {
    pub seconds: u64,
    /// The complete steps that it keeps; there is room for one more.
    pub kept: usize,
    steps: Box<[Step]>,
    /// [`COLUMNS`] for each step.
    cells: Box<[Cell]>,
    /// How long requests of the newest step took, in buckets.
    durations: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The start of the step, in steps since 1970. If it is not the number expected at its place, the step is too old.
    number: u64,
    /// The first sample in the step.
    sample: u64,
    /// Quantiles of the durations of requests, in milliseconds; NaN if there were none.
    pub p50: f32,
    pub p99: f32,
}

const NONE: Step = Step { number: u64::MAX, sample: 0, p50: f32::NAN, p99: f32::NAN };

impl Ring {
    pub const fn bytes(kept: usize) -> usize {
        (kept + 1) * (size_of::<Step>() + COLUMNS * size_of::<Cell>())
    }

    pub fn new(seconds: u64, kept: usize) -> Ring {
        Ring {
            seconds,
            kept,
            steps: vec![NONE; kept + 1].into(),
            cells: vec![[0; 4]; (kept + 1) * COLUMNS].into(),
            durations: Vec::new(),
        }
    }

    /// Starts the step of a second, unless that is done.
    pub fn start(&mut self, second: u64, sample: u64) {
        let number = second / self.seconds;
        let at = self.place(number);
        if self.steps[at].number != number {
            self.steps[at] = Step { number, sample, ..NONE };
            self.cells[at * COLUMNS..][..COLUMNS].fill([0; 4]);
            self.durations.fill(0);
        }
    }

    /// Adds to a column of the step of a second, which was started.
    pub fn add(&mut self, second: u64, column: usize, counts: Counts) {
        let at = self.place(second / self.seconds);
        for (cell, count) in zip(&mut self.cells[at * COLUMNS + column], counts) {
            *cell = cell.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Adds the durations of requests to the step of a second, which was started: their numbers in
    /// buckets with these bounds, in seconds.
    pub fn add_durations(&mut self, second: u64, bounds: &[f64], counts: &[u64]) {
        self.durations.resize(bounds.len() + 1, 0);
        zip(&mut self.durations, counts).for_each(|(all, count)| *all += count);
        let at = self.place(second / self.seconds);
        let milliseconds = |q| {
            quantile(bounds, &self.durations, q).map_or(f32::NAN, |seconds| (seconds * 1e3) as f32)
        };
        (self.steps[at].p50, self.steps[at].p99) = (milliseconds(0.5), milliseconds(0.99));
    }

    /// Returns the complete steps before the second `end`, oldest first; none for those without a sample.
    pub fn steps(&self, end: u64) -> impl Iterator<Item = Option<&Step>> {
        self.places(end).map(|at| at.map(|at| &self.steps[at]))
    }

    /// Returns a column of the complete steps before the second `end`, oldest first; none for those with
    /// samples before `first`, or without any.
    pub fn cells(
        &self,
        end: u64,
        column: usize,
        first: u64,
    ) -> impl Iterator<Item = Option<&Cell>> {
        self.places(end).map(move |at| {
            let at = at.filter(|at| self.steps[*at].sample >= first)?;
            Some(&self.cells[at * COLUMNS + column])
        })
    }

    fn places(&self, end: u64) -> impl Iterator<Item = Option<usize>> {
        let end = end / self.seconds;
        (end.saturating_sub(self.kept as u64)..end).map(|number| {
            let at = self.place(number);
            (self.steps[at].number == number).then_some(at)
        })
    }

    fn place(&self, number: u64) -> usize {
        (number % self.steps.len() as u64) as usize
    }
}

/// Returns how much counters have grown. One that has gone back started over.
pub(super) fn grown(before: &mut Counts, now: Counts) -> Counts {
    let grown = std::array::from_fn(|at| delta(before[at], now[at]));
    *before = now;
    grown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: [f64; 3] = [1.0, 2.0, 4.0];

    #[test]
    fn quantiles_are_interpolated() {
        let quantile_of = |counts: [u64; 4], q| quantile(&BOUNDS, &counts, q);
        assert_eq!(quantile_of([0; 4], 0.5), None);
        assert_eq!(quantile_of([10, 0, 0, 0], 0.5), Some(0.5));
        assert_eq!(quantile_of([0, 10, 0, 0], 0.5), Some(1.5));
        assert_eq!(quantile_of([50, 0, 50, 0], 0.99), Some(2.0 + 2.0 * 0.98));
        assert_eq!(quantile_of([1, 0, 0, 99], 0.99), Some(4.0));
        assert_eq!(quantile(&[], &[5], 0.5), None);
    }

    proptest! {
        /// The quantile is in the bucket of the number with that rank.
        #[test]
        fn a_quantile_is_in_the_bucket_of_its_number(
            numbers in prop::collection::vec(0.0..4.0f64, 1..100),
            q in 0.01..1.0f64,
        ) {
            let bucket = |number: f64| BOUNDS.partition_point(|bound| *bound < number);
            let mut counts = [0; 4];
            numbers.iter().for_each(|number| counts[bucket(*number)] += 1);
            let mut sorted = numbers;
            sorted.sort_by(f64::total_cmp);
            let rank = (q * sorted.len() as f64).ceil() as usize;
            let found = quantile(&BOUNDS, &counts, q).unwrap();
            let (bucket, lower) = (bucket(sorted[rank - 1]), [0.0, 1.0, 2.0]);
            prop_assert!(found >= lower[bucket] && found <= BOUNDS[bucket], "{}", found);
        }
    }
}
