//! A batch of log lines, sorted by time, which the reading thread of `weir replay` hands to the deciding one.

use super::{BATCH, BLOCK_BYTES, MISSING, RowView, Span};
use weir_limit::Micros;

/// Rows (lines as the values of their fields) that are sorted by time.
#[derive(Debug, Default)]
pub(crate) struct Released {
    text: String,
    /// Where the values of all rows are in `text`, one row after the other.
    spans: Vec<Span>,
    rows: Vec<ReleasedRow>,
}

#[derive(Debug)]
struct ReleasedRow {
    time: Micros,
    hits: u32,
    /// The number of spans up to the end of the row.
    end: usize,
}

impl Released {
    pub fn push(&mut self, row: RowView<'_>) {
        for span in row.spans {
            let value = row.text.get(span.start as usize..span.end as usize);
            let span = value.map_or(MISSING, |value| {
                let start = self.text.len() as u32;
                self.text.push_str(value);
                Span { start, end: self.text.len() as u32 }
            });
            self.spans.push(span);
        }
        self.rows.push(ReleasedRow { time: row.time, hits: row.hits, end: self.spans.len() });
    }

    pub fn is_full(&self) -> bool {
        self.rows.len() >= BATCH || self.text.len() >= BLOCK_BYTES
    }

    pub fn iter(&self) -> impl Iterator<Item = RowView<'_>> {
        let mut start = 0;
        self.rows.iter().map(move |&ReleasedRow { time, hits, end }| {
            let spans = self.spans.get(start..end).unwrap_or_default();
            start = end;
            RowView { time, hits, text: &self.text, spans }
        })
    }
}
