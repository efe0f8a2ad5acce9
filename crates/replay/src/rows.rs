//! Sorts the lines of a log by time, for `weir replay`. A row is a line as the values of its fields.
//!
//! Envoy logs a request when it ends, so lines are not in the order in which requests arrived. Rows wait until no
//! earlier one may follow: until the latest time is more than `window` (`--reorder`) ahead. Then they are released:
//! handed on to be decided. An even earlier row is late, and gets the earliest time that may follow.

pub(super) mod released;

use weir_common::truncate::truncated;
use weir_limit::Micros;

/// Rows that wait, at most. With more, the older ones are released before their time.
const MAX_ROWS: usize = 1 << 20;

/// Bytes of waiting rows, at most.
const MAX_BYTES: usize = 256 << 20;

/// Rows of a block (rows in one buffer), at most, and rows between two checks whether some can be released.
const BATCH: usize = 1 << 12;

/// Bytes of a block, roughly: it ends with the row that makes it longer.
const BLOCK_BYTES: usize = 1 << 20;

/// How much of a value an error shows, in bytes.
const MAX_SHOWN_BYTES: usize = 80;

/// The fields of a log that are used.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub names: Vec<String>,
    /// Other names of fields, each with the name in the log.
    aliases: &'static [(&'static str, &'static str)],
}

impl Fields {
    /// The most fields: each is looked for in each line.
    pub const MAX: usize = 1_000;

    pub fn with_aliases(aliases: &'static [(&'static str, &'static str)]) -> Fields {
        Fields { names: Vec::new(), aliases }
    }

    /// The name of a field in the log.
    pub fn key<'n>(&self, name: &'n str) -> &'n str {
        self.aliases.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, key)| key)
    }

    /// Returns the index of a field, which it adds if it is new; none if there are too many.
    pub fn add(&mut self, name: &str) -> Option<usize> {
        let name = self.key(name);
        let known = self.index(name.as_bytes());
        if known.is_none() && self.names.len() < Fields::MAX {
            self.names.push(name.to_owned());
            return Some(self.names.len() - 1);
        }
        known
    }

    pub fn index(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|field| field.as_bytes() == name)
    }
}

/// A range of the text of a block.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

/// A field that the line does not have.
const MISSING: Span = Span { start: u32::MAX, end: u32::MAX };

#[derive(Clone, Copy, Debug)]
struct Row {
    time: Micros,
    hits: u32,
    block: u32,
    /// The index of its first span in the block.
    spans: u32,
}

/// The values of some rows, in the order of their lines. It is used again once all are released.
#[derive(Debug, Default)]
struct Block {
    text: String,
    /// The values of all rows: for each row one per field.
    spans: Vec<Span>,
    waiting: u32,
}

#[derive(Debug, Default)]
pub(super) struct Rows {
    fields: usize,
    window: Micros,
    rows: Vec<Row>,
    blocks: Vec<Block>,
    /// The number of the block with the unfinished row.
    current: usize,
    /// The numbers of blocks without rows.
    free: Vec<usize>,
    /// Where the text and the spans of the unfinished row start.
    unfinished: (usize, usize),
    /// Bytes of the text of all blocks with rows but the current one.
    bytes: usize,
    is_sorted: bool,
    latest: Micros,
    latest_line: u64,
    /// The line with the latest time when a row was late for the first time, and that time.
    pub late_after: Option<(u64, Micros)>,
    /// The time of the last released row: later ones may not be earlier.
    released: Micros,
    pub late: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RowView<'r> {
    pub time: Micros,
    pub hits: u32,
    text: &'r str,
    spans: &'r [Span],
}

impl<'r> RowView<'r> {
    /// The value of a field; none if the line does not have it.
    #[inline]
    pub fn get(&self, field: usize) -> Option<&'r str> {
        let Span { start, end } = *self.spans.get(field)?;
        self.text.get(start as usize..end as usize)
    }
}

impl Rows {
    pub fn new(fields: usize, window: Micros) -> Rows {
        let blocks = vec![Block::default()];
        Rows { fields, window, blocks, is_sorted: true, ..Rows::default() }
    }

    /// Starts a row, in place of an unfinished one.
    #[inline]
    pub fn start(&mut self) {
        let (text, spans) = self.unfinished;
        let block = &mut self.blocks[self.current];
        block.text.truncate(text);
        block.spans.truncate(spans);
        block.spans.resize(spans + self.fields, MISSING);
    }

    /// Sets a field of the unfinished row. Bytes that are not UTF-8 are replaced.
    #[inline]
    pub fn set(&mut self, field: usize, value: &[u8]) {
        match std::str::from_utf8(value) {
            Ok(value) => self.set_text(field, value),
            Err(_) => self.set_text(field, &String::from_utf8_lossy(value)),
        }
    }

    #[inline]
    pub fn set_text(&mut self, field: usize, value: &str) {
        let text = &mut self.blocks[self.current].text;
        let start = text.len() as u32;
        text.push_str(value);
        let end = text.len() as u32;
        self.set_span(field, Span { start, end });
    }

    pub fn unset(&mut self, field: usize) {
        self.set_span(field, MISSING);
    }

    fn set_span(&mut self, field: usize, value: Span) {
        let spans = &mut self.blocks[self.current].spans;
        if let Some(span) = spans.get_mut(self.unfinished.1 + field) {
            *span = value;
        }
    }

    /// The value of a field of the unfinished row.
    #[inline]
    pub fn get(&self, field: usize) -> Option<&str> {
        let block = &self.blocks[self.current];
        let Span { start, end } = *block.spans.get(self.unfinished.1 + field)?;
        block.text.get(start as usize..end as usize)
    }

    #[inline]
    pub fn finish(&mut self, time: Micros, hits: u32, line: u64) {
        let earliest = self.released.max(self.latest.saturating_sub(self.window));
        if time < earliest {
            self.late += 1;
            self.late_after.get_or_insert((self.latest_line, self.latest));
        }
        let time = time.max(earliest);
        self.is_sorted &= time >= self.latest;
        if time > self.latest {
            (self.latest, self.latest_line) = (time, line);
        }
        let (number, block) = (self.current, &mut self.blocks[self.current]);
        self.rows.push(Row { time, hits, block: number as u32, spans: self.unfinished.1 as u32 });
        block.waiting += 1;
        self.unfinished = (block.text.len(), block.spans.len());
        if block.text.len() >= BLOCK_BYTES || block.waiting as usize >= BATCH {
            self.bytes += block.text.len();
            self.start_block();
        }
    }

    /// Makes the next row the first of a block.
    fn start_block(&mut self) {
        self.unfinished = (0, 0);
        self.current = self.free.pop().unwrap_or(self.blocks.len());
        if self.current == self.blocks.len() {
            self.blocks.push(Block::default());
        }
    }

    /// Whether rows can be released, or have to be.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.rows.len() >= BATCH && self.rows.len().is_multiple_of(BATCH) && self.is_old()
            || self.is_full()
    }

    /// Whether at least half of the rows is so old that no earlier one may follow, roughly.
    fn is_old(&self) -> bool {
        let middle = self.rows.get(self.rows.len() / 2);
        middle.is_some_and(|row| row.time < self.latest.saturating_sub(self.window))
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= MAX_ROWS || self.bytes >= MAX_BYTES
    }

    /// Passes rows to `each`, in order of their times: those that no earlier one may precede, and half of
    /// all if there are too many.
    pub fn release(&mut self, mut each: impl FnMut(RowView<'_>)) {
        self.sort();
        let by_time = self.latest.saturating_sub(self.window);
        let mut count = self.rows.partition_point(|row| row.time < by_time);
        if self.is_full() {
            count = count.max(self.rows.len().div_ceil(2));
        }
        self.pass(count, &mut each);
    }

    pub fn release_all(&mut self, mut each: impl FnMut(RowView<'_>)) {
        self.sort();
        self.pass(self.rows.len(), &mut each);
    }

    fn sort(&mut self) {
        if !self.is_sorted {
            // Stable: lines with the same time stay in their order.
            self.rows.sort_by_key(|row| row.time);
            self.is_sorted = true;
        }
    }

    /// Passes the first rows to `each`, and frees their blocks.
    fn pass(&mut self, count: usize, each: &mut impl FnMut(RowView<'_>)) {
        for row in self.rows.drain(..count) {
            let (number, from) = (row.block as usize, row.spans as usize);
            let block = &mut self.blocks[number];
            let spans = &block.spans[from..from + self.fields];
            self.released = row.time;
            each(RowView { time: row.time, hits: row.hits, text: &block.text, spans });
            block.waiting -= 1;
            if block.waiting == 0 && number != self.current {
                self.bytes -= block.text.len();
                block.text.clear();
                block.spans.clear();
                self.free.push(number);
            }
        }
    }
}

/// Returns the start of a value, for errors.
pub(super) fn shown(text: &str) -> String {
    truncated(text, MAX_SHOWN_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::released::Released;
    use super::*;

    /// Sends times through, and returns those that come out, with the indices that they had.
    fn released(times: &[Micros], window: Micros) -> (Vec<(Micros, usize)>, u64) {
        let (mut rows, mut handed) = (Rows::new(2, window), Released::default());
        let mut out = Vec::new();
        for (i, time) in times.iter().enumerate() {
            rows.start();
            rows.set(0, b"of a line that is not used");
            rows.start();
            rows.set(1, i.to_string().as_bytes());
            rows.finish(*time, i as u32 + 1, i as u64);
            if i % 3 == 0 || rows.is_ready() {
                rows.release(|row| handed.push(row));
            }
        }
        rows.release_all(|row| handed.push(row));
        for row in handed.iter() {
            assert_eq!(row.get(0), None);
            assert_eq!(row.hits, row.get(1).unwrap().parse::<u32>().unwrap() + 1);
            out.push((row.time, row.get(1).unwrap().parse().unwrap()));
        }
        (out, rows.late)
    }

    #[test]
    fn lines_out_of_order_are_sorted_within_the_window() {
        let (rows, late) = released(&[10, 12, 11, 30, 25, 24, 40], 5);
        let times: Vec<Micros> = rows.iter().map(|(time, _)| *time).collect();
        // 24 is late: 25 is the earliest time 5 before 30.
        assert_eq!((times, late), (vec![10, 11, 12, 25, 25, 30, 40], 1));
        assert_eq!(rows[3..5], [(25, 4), (25, 5)]);
    }

    #[test]
    fn text_that_is_not_utf_8_is_replaced() {
        let mut rows = Rows::new(1, 0);
        rows.start();
        rows.set(0, b"a\xffb");
        assert_eq!(rows.get(0), Some("a\u{fffd}b"));
    }

    #[test]
    fn too_many_rows_are_released_early() {
        let mut rows = Rows::new(0, 1_000);
        for i in 0..3 * MAX_ROWS as u64 {
            rows.start();
            rows.finish(i / 10_000, 1, i);
            if rows.is_ready() {
                rows.release(|_| {});
            }
            assert!(rows.rows.len() < MAX_ROWS);
        }
    }

    proptest! {
        /// As a sort of all rows, once late ones have the earliest time that is allowed.
        #[test]
        fn rows_are_sorted(
            steps in prop::collection::vec(-30..40i64, 0..200),
            window in 0..50u64,
        ) {
            let (mut at, mut latest, mut late) = (1_000i64, 0i64, 0);
            let (mut times, mut expected) = (Vec::new(), Vec::new());
            for (i, step) in steps.into_iter().enumerate() {
                at = (at + step).max(0);
                let earliest = (latest - window as i64).max(0);
                late += u64::from(at < earliest);
                times.push(at as u64);
                expected.push((at.max(earliest) as u64, i));
                latest = latest.max(at);
            }
            expected.sort_by_key(|(time, _)| *time);
            prop_assert_eq!(released(&times, window), (expected, late));
        }
    }
}
