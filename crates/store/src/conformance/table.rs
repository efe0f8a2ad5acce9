//! The table that all replicas share, and one in memory for tests.

use std::collections::BTreeMap;
use std::future::ready;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::shared::{RowChange, SharedTable, TableError, TableRow, TableVersion, TableWritten};
use weir_limit::{Micros, SECOND};

/// The rows of a [`FakeTable`] that are written at once, as by one call of a server.
const ROWS_PER_CALL: usize = 50;

/// A version, and the time and text of each row.
#[derive(Clone, Debug, Default)]
pub struct FakeRows {
    /// The version; 0 before the first row.
    pub version: Micros,
    /// The rows by their names.
    pub rows: BTreeMap<String, (Micros, String)>,
}

/// A table in memory, as a server keeps it.
#[derive(Debug, Default)]
pub struct FakeTable {
    /// The rows and their version.
    pub rows: Mutex<FakeRows>,
    /// The time of the server.
    pub time: Mutex<Micros>,
}

impl FakeRows {
    fn version_text(&self) -> String {
        if self.version == 0 { String::new() } else { self.version.to_string() }
    }

    fn write(&mut self, changes: &[RowChange], now: Micros) -> TableWritten {
        let (before, mut is_moved) = (self.version_text(), false);
        for RowChange { name, at, is_new, text } in changes {
            let (mut at, old) = (*at, self.rows.get(name).map(|(at, _)| *at));
            if let Some(old) = old.filter(|old| *is_new && at <= *old) {
                (at, is_moved) = (old + 1, true);
            }
            match text {
                Some(text) if old.is_none_or(|old| old < at) => {
                    self.rows.insert(name.clone(), (at, text.clone()));
                    self.version = now.max(self.version + 1);
                }
                None if old == Some(at) => drop(self.rows.remove(name)),
                _ => {}
            }
        }
        match is_moved {
            true => TableWritten::Unread { before },
            false => TableWritten::Alone { before, after: self.version_text() },
        }
    }
}

impl FakeTable {
    /// Writes rows in several calls, between which others may write.
    async fn write_in_calls(&self, changes: &[RowChange]) -> TableWritten {
        let write = |changes| self.rows.lock().write(changes, *self.time.lock());
        let (first, rest) = changes.split_at(changes.len().min(ROWS_PER_CALL));
        let mut written = write(first);
        for changes in rest.chunks(ROWS_PER_CALL) {
            tokio::task::yield_now().await;
            written = written.and_then(write(changes));
        }
        written
    }
}

impl SharedTable for FakeTable {
    fn tried(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn version(&self) -> BoxFuture<'_, Result<TableVersion, TableError>> {
        let (version, time) = (self.rows.lock().version_text(), *self.time.lock());
        ready(Ok(TableVersion { version, time })).boxed()
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<TableRow>, TableError>> {
        let rows = self.rows.lock().rows.clone().into_iter();
        let rows = rows.map(|(name, (at, text))| TableRow { name, at, text }).collect();
        ready(Ok(rows)).boxed()
    }

    fn write<'a>(
        &'a self,
        changes: &'a [RowChange],
    ) -> BoxFuture<'a, Result<TableWritten, TableError>> {
        self.write_in_calls(changes).map(Ok).boxed()
    }
}

/// Panics unless two handles of one empty table share its rows. `time` is that of the table, within a minute.
pub async fn conforms(a: &dyn SharedTable, b: &dyn SharedTable, time: Micros) {
    shares_rows_of_which_the_newest_wins(a, b, time).await;
    keeps_a_new_change_after_a_later_row(a, b).await;
    writes_more_rows_than_a_call_has(a, b).await;
    writes_all_rows_of_two_writers(a, b).await;
}

fn row(name: &str, at: Micros, text: &str) -> RowChange {
    RowChange { name: name.into(), at, is_new: false, text: Some(text.into()) }
}

async fn version(table: &dyn SharedTable) -> String {
    table.version().await.unwrap().version
}

/// Returns the rows whose names begin with `prefix`, in order.
async fn rows(table: &dyn SharedTable, prefix: &str) -> Vec<TableRow> {
    let mut rows = table.rows().await.unwrap();
    rows.retain(|row| row.name.starts_with(prefix));
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

async fn write_alone(table: &dyn SharedTable, changes: &[RowChange]) -> [String; 2] {
    match table.write(changes).await.unwrap() {
        TableWritten::Alone { before, after } => [before, after],
        written => panic!("{written:?}"),
    }
}

async fn shares_rows_of_which_the_newest_wins(
    a: &dyn SharedTable,
    b: &dyn SharedTable,
    time: Micros,
) {
    assert_eq!((version(a).await.as_str(), rows(a, "").await), ("", vec![]));
    let [before, after] = write_alone(a, &[row("x", 5, "five"), row("y", 5, "y")]).await;
    let read = b.version().await.unwrap();
    assert_eq!((before.as_str(), &after), ("", &read.version));
    assert!(read.time.abs_diff(time) < 60 * SECOND, "{} {time}", read.time);
    // As new or older: nothing changes.
    let older = write_alone(b, &[row("x", 5, "other"), row("x", 4, "four")]).await;
    assert_eq!(older, [after.clone(), after.clone()]);
    let newer = write_alone(b, &[row("x", 6, "six")]).await;
    assert_eq!(newer[0], after);
    assert_ne!(newer[1], after);
    let remove = |name: &str, at| RowChange { text: None, ..row(name, at, "") };
    write_alone(b, &[remove("x", 5), remove("y", 5)]).await;
    let six = TableRow { name: "x".into(), at: 6, text: "six".into() };
    assert_eq!(rows(a, "").await, [six]);
}

async fn keeps_a_new_change_after_a_later_row(a: &dyn SharedTable, b: &dyn SharedTable) {
    write_alone(a, &[row("new", 100, "of a clock that is ahead")]).await;
    let before = version(a).await;
    let new = RowChange { is_new: true, ..row("new", 70, "new") };
    assert_eq!(b.write(&[new]).await.unwrap(), TableWritten::Unread { before });
    let after = TableRow { name: "new".into(), at: 101, text: "new".into() };
    assert_eq!(rows(a, "new").await, std::slice::from_ref(&after));
    // Sent again, they are old.
    write_alone(b, &[row("new", 70, "new"), row("new", 101, "again")]).await;
    assert_eq!(rows(a, "new").await, [after]);
    let later = RowChange { is_new: true, ..row("new", 200, "later") };
    write_alone(b, &[later]).await;
    assert_eq!(rows(a, "new").await[0].at, 200);
}

async fn writes_more_rows_than_a_call_has(a: &dyn SharedTable, b: &dyn SharedTable) {
    let many: Vec<_> = (0..1_001).map(|i| row(&format!("many {i}"), 1, "text")).collect();
    let before = version(a).await;
    let [first, last] = write_alone(a, &many).await;
    assert_eq!((first, last), (before, version(b).await));
    assert_eq!(rows(b, "many ").await.len(), 1_001);
}

async fn writes_all_rows_of_two_writers(a: &dyn SharedTable, b: &dyn SharedTable) {
    let rows_of = |who: &str| -> Vec<_> {
        (0..300).map(|i| row(&format!("of {who} {i}"), 1, "text")).collect()
    };
    let (changes_a, changes_b) = (rows_of("a"), rows_of("b"));
    let before = version(a).await;
    let (of_a, of_b) = tokio::join!(a.write(&changes_a), b.write(&changes_b));
    for written in [of_a.unwrap(), of_b.unwrap()] {
        let (TableWritten::Alone { before: known, .. } | TableWritten::Unread { before: known }) =
            written
        else {
            panic!("the table was not emptied")
        };
        assert!(known >= before && !known.is_empty(), "{known}");
    }
    assert_eq!(rows(a, "of ").await.len(), 600);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_fake_conforms() {
        let table = FakeTable::default();
        conforms(&table, &table, 0).await;
    }

    #[tokio::test]
    async fn a_table_that_is_emptied_between_two_calls_is_no_table_of_another_writer() {
        let table = FakeTable::default();
        table.write(&[row("x", 1, "x")]).await.unwrap();
        let changes: Vec<_> = (0..60).map(|i| row(&i.to_string(), 1, "text")).collect();
        let empty = async { *table.rows.lock() = FakeRows::default() };
        let (written, ()) = tokio::join!(table.write(&changes), empty);
        assert_eq!(written, Ok(TableWritten::Emptied));
    }
}
