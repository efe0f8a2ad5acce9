//! Processes that share a table, which can be away.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

use super::*;
use weir_store::conformance::table::{FakeRows, FakeTable};
use weir_store::{
    RowChange, SharedTable, StoreError, TableError, TableRow, TableVersion, TableWritten,
};

/// A table that can be away.
#[derive(Debug, Default)]
struct Table {
    fake: FakeTable,
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

impl SharedTable for Table {
    fn tried(&self) -> BoxFuture<'_, ()> {
        self.fake.tried()
    }

    fn version(&self) -> BoxFuture<'_, Result<TableVersion, TableError>> {
        *self.fake.time.lock() = NOW;
        async move { self.check().and(self.fake.version().await) }.boxed()
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<TableRow>, TableError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.unreadable.load(Ordering::Relaxed) {
            true => std::future::ready(Err(StoreError::Unavailable.into())).boxed(),
            false => async move { self.check().and(self.fake.rows().await) }.boxed(),
        }
    }

    fn write<'a>(
        &'a self,
        changes: &'a [RowChange],
    ) -> BoxFuture<'a, Result<TableWritten, TableError>> {
        async move {
            self.check()?;
            self.fake.write(changes).await
        }
        .boxed()
    }
}

/// A process that shares a table.
struct Replica {
    process: Process,
    running: JoinHandle<()>,
}

impl Replica {
    fn start(table: &Arc<Table>) -> Replica {
        let process =
            Process::new(ControlsOptions { is_shared: true, ..ControlsOptions::default() });
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
    table.fake.rows.lock().version += 1;
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
    *table.fake.rows.lock() = FakeRows { version: 99, ..FakeRows::default() };
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
    *table.fake.rows.lock() = FakeRows::default();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(a.process.controls.table_losses(), 1);
    assert_eq!(table.fake.rows.lock().rows.len(), 1, "the control is written again");
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_not_understood_are_left_alone() {
    let table = Arc::new(Table::default());
    let strange = [("x", "{}"), ("y", "{\"action\":\"new\"}"), ("z", "no json")];
    let rows = strange.map(|(name, text)| (name.to_owned(), (NOW, text.to_owned())));
    *table.fake.rows.lock() = FakeRows { version: 1, rows: rows.into_iter().collect() };
    let a = Replica::start(&table);
    assert!(a.process.put(block("ann")).await.shared);
    assert_eq!(table.fake.rows.lock().rows.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_first_read_that_fails_is_repeated_at_once() {
    let table = Arc::new(Table::default());
    Replica::start(&table).process.put(block("ann")).await;
    table.set_away(true);
    let poll = std::time::Duration::from_secs(3_600);
    let process =
        Process::new(ControlsOptions { is_shared: true, poll, ..ControlsOptions::default() });
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

#[tokio::test(start_paused = true)]
async fn two_writers_of_many_rows_lose_none_and_do_not_take_each_other_for_a_loss() {
    let table = Arc::new(Table::default());
    let (a, b) = (Replica::start(&table), Replica::start(&table));
    a.process.put(block("ann")).await;
    b.until_blocked(&["ann"]).await;
    table.set_away(true);
    let put = |replica: &Replica, name: &str, i: usize| {
        let (controls, user) = (replica.process.controls.clone(), format!("{name}{i}"));
        let put = async move { controls.put(None, block(&user), PutOptions::default()).await };
        tokio::spawn(put)
    };
    let puts = (0..120).flat_map(|i| [put(&a, "a", i), put(&b, "b", i)]).collect::<Vec<_>>();
    for put in puts {
        assert!(!put.await.unwrap().unwrap().shared);
    }
    table.set_away(false);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(table.fake.rows.lock().rows.len(), 241, "all rows are written");
    for replica in [&a, &b] {
        let controls = &replica.process.controls;
        assert_eq!((controls.list().len(), controls.table_losses()), (241, 0));
        assert_eq!(controls.unshared(), 0, "nothing is left to share");
    }
}

#[tokio::test(start_paused = true)]
async fn the_later_of_two_changes_wins_although_its_clock_is_behind() {
    let table = Arc::new(Table::default());
    let (a, b) = (Replica::start(&table), Replica::start(&table));
    let first = a.process.put(block("ann")).await.control;
    b.until_blocked(&["ann"]).await;
    a.process.clock.advance(SECOND);
    let ahead = a.process.put(Draft { reason: "earlier".into(), ..block("ann") }).await;
    assert!(ahead.shared && ahead.control.at == first.at + SECOND);
    let behind = b.process.put(Draft { reason: "later".into(), ..block("ann") }).await;
    assert!(behind.shared);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    for replica in [&a, &b] {
        let control = replica.process.controls.get(&first.id).unwrap();
        assert_eq!((control.reason.as_str(), control.at), ("later", ahead.control.at + 1));
    }
    assert!(b.process.controls.delete(&first.id).await.unwrap().shared);
    a.until_blocked(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn an_own_clock_that_is_ahead_does_not_win_over_later_changes() {
    let table = Arc::new(Table::default());
    table.set_away(true);
    let a = Replica::start(&table);
    a.process.clock.advance(86_400 * SECOND);
    let control = a.process.put(block("ann")).await.control;
    assert!(control.at > NOW);
    table.set_away(false);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(a.process.controls.get(&control.id).unwrap().at, NOW);
    assert_eq!(table.fake.rows.lock().rows[&control.id].0, NOW);
}
