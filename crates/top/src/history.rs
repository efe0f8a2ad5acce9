//! What the lists of top keys (those with the most hits or denials) know of the last minute, the last hour and all
//! time: a row for each key, with its counts in a few consecutive spans of time, all before the current step of 20 s.
//!
//! Decisions are counted in the sketches of the current step alone. When it ends, [`History::add`] takes its
//! merged rows as the newest of the *steps*. The oldest step is added to the newest *part* of an hour, and a
//! part that is over an hour old to the *rest*, which is all before:
//!
//! ```text
//! now ─▶ current │ 3 steps of 20 s │ 7 parts of 10 min, the newest of which grows │ rest ─▶ start
//! ```
//!
//! A row has a count and an error for each span. When there are too many rows, those that stay have the most
//! hits that are certain, of the last hour, of all time, or of the last minute.
//!
//! **Certain.** A window is the newest spans up to one of them. The true count of a key in a window is from
//! `count - error` to `count`, each summed over its spans. What a key without a row can have had at most in a
//! window is known, too, as in [sketches](super::sketch): in the last minute by one bound a step for all keys, in
//! an hour and in all time by cells (bounds that keys share by their hash). Cells are raised by rows that are dropped, and by what
//! the sketches of a step have no row for. A new row gets the bounds of its key as a part of its count and as its
//! error, in spans that no window leaves before those in which the hits can have been.
//!
//! Cells are of a *generation* of about seven parts, of the last generation while any of its spans is in the hour,
//! and of the rest: a generation begins with a part, so that each span is of one of the three.

use std::cmp::Reverse;

use hashbrown::HashTable;

use super::key::RowKey;
use super::list::Window;
use super::merge::Merged;
use super::sketch::{Cells, Row, Snapshot, cell_at};
use weir_limit::{Micros, SECOND};

pub(super) const STEP: Micros = 20 * SECOND;

/// The least length of a part.
const PART: Micros = 600 * SECOND;

/// The steps behind the current one: a minute.
const STEPS: usize = 3;

/// Six parts are an hour, and the newest one is not complete.
const PARTS: usize = 7;

const NEWEST_PART: usize = STEPS;
const REST: usize = STEPS + PARTS;
const SPANS: usize = REST + 1;

const MIN_ROWS: usize = 8;

/// The rows of one list, the spans of each from the newest on.
#[derive(Debug)]
pub(super) struct History {
    rows: Vec<HistoryRow>,
    max_rows: usize,
    /// The hits of all keys.
    totals: [u64; SPANS],
    /// The most hits in each step that a key without a row can have had.
    unlisted: [u64; STEPS],
    /// The hits that keys without a row can have had in this generation and in the last one; and in those before.
    generation: Cells,
    last_generation: Cells,
    rest: Cells,
    /// The newest spans, which are of this generation.
    own: usize,
}

#[derive(Debug)]
struct HistoryRow {
    hash: u64,
    key: RowKey,
    spans: [Counted; SPANS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    count: u64,
    error: u64,
}

/// When the spans of all lists began.
#[derive(Debug)]
pub(super) struct Spans {
    starts: [Micros; SPANS],
    current: Micros,
    /// Whether a part begins with each step.
    begins_part: [bool; STEPS],
    /// When the last part begins that begins with a step, or before them.
    part: Micros,
}

/// What changes when a step ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepEnd {
    /// Whether a part begins with that step, once it is the oldest.
    begins_part: bool,
    /// Whether a part begins with the step that is joined to the parts.
    ends_part: bool,
}

impl Spans {
    pub fn new(now: Micros) -> Spans {
        Spans { starts: [now; SPANS], current: now, begins_part: [false; STEPS], part: now }
    }

    pub fn is_due(&self, now: Micros) -> bool {
        now.saturating_sub(self.current) >= STEP
    }

    pub fn end_step(&mut self, now: Micros) -> StepEnd {
        let ends_part = self.begins_part[STEPS - 1];
        if ends_part {
            self.starts.copy_within(NEWEST_PART..REST - 1, NEWEST_PART + 1);
            self.starts[NEWEST_PART] = self.starts[STEPS - 1];
        }
        self.starts.copy_within(..STEPS - 1, 1);
        self.starts[0] = self.current;
        let begins_part = self.current.saturating_sub(self.part) >= PART;
        if begins_part {
            self.part = self.current;
        }
        self.begins_part.copy_within(..STEPS - 1, 1);
        self.begins_part[0] = begins_part;
        self.current = now;
        StepEnd { begins_part, ends_part }
    }

    /// Returns how long a window has counted.
    pub fn covered(&self, window: Window, now: Micros) -> Micros {
        now.saturating_sub(self.starts[spans(window) - 1])
    }
}

/// Returns the number of spans of a window, besides the current step.
fn spans(window: Window) -> usize {
    match window {
        Window::Minute => STEPS,
        // Of the newest part there may be only a moment.
        Window::TenMinutes => NEWEST_PART + 2,
        Window::Hour => REST,
        Window::Start => SPANS,
    }
}

/// Makes room for a new step. `join` adds the span that is joined to another.
fn shift<T: Copy + Default>(spans: &mut [T; SPANS], ends_part: bool, join: impl Fn(&mut T, T)) {
    if ends_part {
        let oldest = spans[REST - 1];
        join(&mut spans[REST], oldest);
        spans.copy_within(NEWEST_PART..REST - 1, NEWEST_PART + 1);
        spans[NEWEST_PART] = T::default();
    }
    let step = spans[STEPS - 1];
    join(&mut spans[NEWEST_PART], step);
    spans.copy_within(..STEPS - 1, 1);
    spans[0] = T::default();
}

fn add(to: &mut u64, more: u64) {
    *to = to.saturating_add(more);
}

impl Counted {
    /// A count of which nothing is known but its bound.
    fn at_most(bound: u64) -> Counted {
        Counted { count: bound, error: bound }
    }

    fn add(&mut self, other: Counted) {
        add(&mut self.count, other.count);
        add(&mut self.error, other.error);
    }
}

impl HistoryRow {
    fn counted(&self, window: Window) -> Counted {
        let mut sum = Counted::default();
        self.spans[..spans(window)].iter().for_each(|span| sum.add(*span));
        sum
    }

    /// Returns the hits that the key has certainly had.
    fn certain(&self, window: Window) -> u64 {
        let Counted { count, error } = self.counted(window);
        count - error
    }
}

impl Default for History {
    fn default() -> History {
        History {
            rows: Vec::new(),
            max_rows: MIN_ROWS,
            totals: [0; SPANS],
            unlisted: [0; STEPS],
            generation: Cells::default(),
            last_generation: Cells::default(),
            rest: Cells::default(),
            own: REST,
        }
    }
}

impl History {
    /// Adds what was counted in the step that ended. Keeps `max_rows`, or more if it may have had more before,
    /// and `cells` of each generation.
    pub fn add(&mut self, step: Merged<()>, end: StepEnd, max_rows: usize, cells: usize) {
        self.max_rows = self.max_rows.max(max_rows);
        self.shift(end);
        self.totals[0] = step.total;
        self.unlisted[0] = step.unlisted;
        // Of this generation after the step. The rows that are made meanwhile have the bounds from before.
        let mut raised = vec![0; cells.next_power_of_two()];
        step.add_bounds(&mut raised);
        self.generation.add_to(&mut raised);
        let mut index: HashTable<usize> = HashTable::with_capacity(self.rows.len());
        for row in &mut self.rows {
            row.spans[0] = Counted::at_most(step.bound(row.hash));
        }
        let rows = &mut self.rows;
        for at in 0..rows.len() {
            index.insert_unique(rows[at].hash, at, |at| rows[*at].hash);
        }
        let mut new = step.rows;
        new.retain(|new| {
            let known = index.find(new.hash, |at| rows[*at].hash == new.hash).copied();
            let Some(row) = known.and_then(|at| rows.get_mut(at)) else { return true };
            row.spans[0] = Counted { count: new.count, error: new.error };
            false
        });
        // Not all at once: that would take the memory of all.
        for some in new.chunks(self.max_rows / 4) {
            self.rows.reserve_exact(some.len());
            for row in some {
                let row = self.row(row);
                self.rows.push(row);
            }
            self.truncate(&mut raised);
        }
        self.generation = Cells::of(&raised);
    }

    fn shift(&mut self, StepEnd { begins_part, ends_part }: StepEnd) {
        shift(&mut self.totals, ends_part, add);
        for row in &mut self.rows {
            shift(&mut row.spans, ends_part, Counted::add);
        }
        self.unlisted.copy_within(..STEPS - 1, 1);
        if begins_part && self.own == REST {
            self.last_generation = std::mem::take(&mut self.generation);
            self.own = 1;
        } else if self.own <= STEPS || ends_part {
            // The first step of a generation is also that of a part.
            self.own = REST.min(self.own + 1);
        }
        if self.own == REST {
            let last = std::mem::take(&mut self.last_generation);
            self.rest = Cells::sum(&[&self.rest, &last]);
        }
    }

    /// Returns the row of a key that had none.
    fn row(&self, Row { hash, key, count, error, .. }: &Row<()>) -> HistoryRow {
        let (mut own, mut last) = (self.generation.get(*hash), self.last_generation.get(*hash));
        let mut spans = [Counted::default(); SPANS];
        spans[0] = Counted { count: *count, error: *error };
        for (at, unlisted) in self.unlisted.iter().enumerate().skip(1) {
            let left = if at < self.own { &mut own } else { &mut last };
            let bound = *unlisted.min(left);
            *left -= bound;
            spans[at] = Counted::at_most(bound);
        }
        // A generation that is no older than the steps has no others.
        if self.own > STEPS {
            spans[NEWEST_PART] = Counted::at_most(own);
        }
        spans[self.own.max(NEWEST_PART)].add(Counted::at_most(last));
        spans[REST].add(Counted::at_most(self.rest.get(*hash)));
        HistoryRow { hash: *hash, key: key.clone(), spans }
    }

    /// Drops rows beyond the number of them, and raises the cells of this generation.
    fn truncate(&mut self, raised: &mut [u64]) {
        if self.rows.len() <= self.max_rows {
            return;
        }
        let mut kept = 0;
        for (window, part) in [(Window::Hour, 2), (Window::Start, 4), (Window::Minute, 4)] {
            let (rest, rows) = (&mut self.rows[kept..], self.max_rows / part);
            rest.select_nth_unstable_by_key(rows, |row| Reverse(row.certain(window)));
            kept += rows;
        }
        for row in self.rows.drain(kept..) {
            for (unlisted, step) in self.unlisted.iter_mut().zip(&row.spans) {
                *unlisted = step.count.max(*unlisted);
            }
            let (own, last) = row.spans[..REST].split_at(self.own);
            let [own, last] = [own, last]
                .map(|spans| spans.iter().fold(0, |sum: u64, span| sum.saturating_add(span.count)));
            if let Some(cell) = raised.get_mut(cell_at(row.hash, raised.len())) {
                *cell = own.max(*cell);
            }
            let rest = row.spans[REST].count;
            for (cells, to) in [(&mut self.last_generation, last), (&mut self.rest, rest)] {
                if to > 0 {
                    cells.raise(row.hash, to, raised.len());
                }
            }
        }
        self.rows.shrink_to(self.max_rows);
    }

    /// Returns a copy of the rows of a window, without the current step, to be merged with others.
    pub fn snapshot(&self, window: Window) -> Snapshot<()> {
        let sum = |of: &[u64]| of.iter().fold(0, |a: u64, b| a.saturating_add(*b));
        let row = |row: &HistoryRow| {
            let Counted { count, error } = row.counted(window);
            Row { hash: row.hash, key: row.key.clone(), count, error, payload: () }
        };
        Snapshot {
            rows: self.rows.iter().map(row).collect(),
            cells: match window {
                // One cell for all keys.
                Window::Minute => Cells::of(&[sum(&self.unlisted)]),
                // An hour's bound is one of ten minutes, too.
                Window::TenMinutes | Window::Hour => {
                    Cells::sum(&[&self.generation, &self.last_generation])
                }
                Window::Start => Cells::sum(&[&self.generation, &self.last_generation, &self.rest]),
            },
            total: sum(&self.totals[..spans(window)]),
        }
    }
}
