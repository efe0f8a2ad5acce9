//! Processes that share a table, which can be away.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::*;
use weir_store::{RowChange, SharedTable, StoreError, TableError, TableVersion, TableWritten};

/// The text of each row, and the time before it.
type Rows = BTreeMap<String, (Micros, String)>;

/// A table in memory, as Redis keeps it.
#[derive(Debug, Default)]
struct Table {
    /// The version of the table, and its rows.
    rows: Mutex<(u64, Rows)>,
    away: AtomicBool,
    /// Whether a row is too large to be read.
    unreadable: AtomicBool,
    asked: AtomicUsize,
}

impl Table {
    fn check(&self) -> Result<(), TableError> {
        match self.away.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable.into()),
            false => Ok(()),
        }
    }

    fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }
}

/// Returns a version as Redis has it: none before the first row.
fn version_text(version: u64) -> String {
    if version == 0 { String::new() } else { version.to_string() }
}

impl SharedTable for Table {
    fn tried(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn version(&self) -> BoxFuture<'_, Result<TableVersion, TableError>> {
        let version = version_text(self.rows.lock().0);
        async move { self.check().map(|()| TableVersion { version, time: NOW }) }.boxed()
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, TableError>> {
        let rows = self.rows.lock().1.clone();
        let rows = rows.into_iter().map(|(name, (_, text))| (name, text)).collect();
        self.asked.fetch_add(1, Ordering::Relaxed);
        let read = match self.unreadable.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable.into()),
            false => self.check().map(|()| rows),
        };
        std::future::ready(read).boxed()
    }

    fn write<'a>(
        &'a self,
        changes: &'a [RowChange],
    ) -> BoxFuture<'a, Result<TableWritten, TableError>> {
        let write = || {
            self.check()?;
            let mut table = self.rows.lock();
            let before = version_text(table.0);
            for RowChange { name, at, text } in changes {
                let old = table.1.get(name).map(|(at, _)| *at);
                match text {
                    Some(text) if old.is_none_or(|old| old < *at) => {
                        table.1.insert(name.clone(), (*at, text.clone()));
                        table.0 += 1;
                    }
                    None if old == Some(*at) => drop(table.1.remove(name)),
                    _ => {}
                }
            }
            Ok(TableWritten { before, after: version_text(table.0) })
        };
        std::future::ready(write()).boxed()
    }
}

/// A process that shares a table.
struct Replica {
    process: Process,
    running: JoinHandle<()>,
}

impl Replica {
    fn start(table: &Arc<Table>) -> Replica {
        let process = Process::new(Options { is_shared: true, ..Options::default() });
        let (controls, table) = (process.controls.clone(), table.clone());
        let running = tokio::spawn(async move { controls.run(Some(&*table)).await });
        Replica { process, running }
    }

    /// Waits until exactly these of some users are blocked.
    async fn until_blocked(&self, expected: &[&str]) {
        let all = ["ann", "bob", "cid"];
        for _ in 0..100 {
            if self.process.blocked(&all) == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(self.process.blocked(&all), expected);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_applies_at_all_replicas_within_a_second() {
    let table = Arc::new(Table::default());
    let (a, b) = (Replica::start(&table), Replica::start(&table));
    let ann = a.process.put(block("ann")).await;
    assert!(ann.shared && ann.kept);
    b.until_blocked(&["ann"]).await;
    assert!(b.process.controls.delete(&ann.control.id).await.unwrap().shared);
    a.until_blocked(&[]).await;
    // One that starts later has them too.
    a.process.put(block("bob")).await;
    Replica::start(&table).until_blocked(&["bob"]).await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_cannot_be_read_are_asked_for_less_and_less() {
    let table = Arc::new(Table::default());
    let (a, b) = (Replica::start(&table), Replica::start(&table));
    a.process.put(block("ann")).await;
    b.until_blocked(&["ann"]).await;
    table.unreadable.store(true, Ordering::Relaxed);
    // As another program would write it.
    table.rows.lock().0 += 1;
    let before = table.asked.load(Ordering::Relaxed);
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let asked = table.asked.load(Ordering::Relaxed) - before;
    // At each poll, 4 800 times.
    assert!((20..200).contains(&asked), "{asked}");
    assert!(b.process.controls.share_error().is_some());
    table.unreadable.store(false, Ordering::Relaxed);
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    a.process.put(block("bob")).await;
    b.until_blocked(&["ann", "bob"]).await;
    assert_eq!(b.process.controls.share_error(), None);
}

#[tokio::test(start_paused = true)]
async fn changes_during_an_outage_are_shared_after_it() {
    let table = Arc::new(Table::default());
    let (a, b) = (Replica::start(&table), Replica::start(&table));
    let ann = a.process.put(block("ann")).await.control;
    b.until_blocked(&["ann"]).await;
    table.set_away(true);
    let bob = a.process.put(block("bob")).await;
    assert!(!bob.shared && !bob.kept);
    assert_eq!(a.process.blocked(&["ann", "bob"]), ["ann", "bob"]);
    assert!(!b.process.controls.delete(&ann.id).await.unwrap().shared);
    assert_eq!(b.process.blocked(&["ann", "bob"]), [""; 0]);
    assert!(a.process.controls.share_error().is_some());
    table.set_away(false);
    a.until_blocked(&["bob"]).await;
    b.until_blocked(&["bob"]).await;
    assert_eq!(a.process.controls.share_error(), None);
}

#[tokio::test(start_paused = true)]
async fn the_newest_write_of_an_id_wins() {
    let table = Arc::new(Table::default());
    let (a, b) = (Replica::start(&table), Replica::start(&table));
    let first = a.process.put(block("ann")).await.control;
    b.until_blocked(&["ann"]).await;
    table.set_away(true);
    a.process.controls.delete(&first.id).await.unwrap();
    // Written later than it was deleted, elsewhere.
    b.process.clock.advance(SECOND);
    let second = b.process.put(block("ann")).await.control;
    assert!(second.at > first.at);
    table.set_away(false);
    a.until_blocked(&["ann"]).await;
    assert_eq!(a.process.controls.get(&first.id).unwrap().at, second.at);
}

#[tokio::test(start_paused = true)]
async fn what_the_table_loses_comes_back() {
    let table = Arc::new(Table::default());
    let (a, b) = (Replica::start(&table), Replica::start(&table));
    a.process.put(block("ann")).await;
    b.until_blocked(&["ann"]).await;
    // As after a flush, or a failover to a replica that lacks the last writes.
    *table.rows.lock() = (99, BTreeMap::new());
    Replica::start(&table).until_blocked(&["ann"]).await;
    assert_eq!(
        (a.process.blocked(&["ann"]), b.process.blocked(&["ann"])),
        (vec!["ann"], vec!["ann"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_emptied_is_noticed_once() {
    let table = Arc::new(Table::default());
    let a = Replica::start(&table);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    a.process.put(block("ann")).await;
    assert_eq!(a.process.controls.table_losses(), 0);
    *table.rows.lock() = Default::default();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(a.process.controls.table_losses(), 1);
    assert_eq!(table.rows.lock().1.len(), 1, "the control is written again");
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_not_understood_are_left_alone() {
    let table = Arc::new(Table::default());
    let strange = [("x", "{}"), ("y", "{\"action\":\"new\"}"), ("z", "no json")];
    let rows = strange.map(|(name, text)| (name.to_owned(), (NOW, text.to_owned())));
    *table.rows.lock() = (1, rows.into_iter().collect());
    let a = Replica::start(&table);
    assert!(a.process.put(block("ann")).await.shared);
    assert_eq!(table.rows.lock().1.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_first_read_that_fails_is_repeated_at_once() {
    let table = Arc::new(Table::default());
    Replica::start(&table).process.put(block("ann")).await;
    table.set_away(true);
    let poll = std::time::Duration::from_secs(3_600);
    let process = Process::new(Options { is_shared: true, poll, ..Options::default() });
    let mut first_read = process.controls.first_read();
    let (controls, shared) = (process.controls.clone(), table.clone());
    let running = tokio::spawn(async move { controls.run(Some(&*shared)).await });
    first_read.wait_for(|read| *read == FirstRead::Failed).await.unwrap();
    table.set_away(false);
    let back = tokio::time::Instant::now();
    first_read.wait_for(|read| *read == FirstRead::Done).await.unwrap();
    assert!(back.elapsed() < std::time::Duration::from_secs(1), "{:?}", back.elapsed());
    assert_eq!(process.blocked(&["ann"]), ["ann"], "it is known when the read is done");
    // From then on, outages change nothing.
    table.set_away(true);
    process.put(block("bob")).await;
    assert_eq!(*first_read.borrow(), FirstRead::Done);
    running.abort();
}
