//! The table that all replicas share: a hash of its rows and a version, in one slot.
//!
//! Commands go over a connection that is open for charges, so nothing has to connect first. Rows may be
//! megabytes: they are written in parts, so that no charge waits for long, and read in parts over a
//! connection of their own.

use std::collections::HashMap;
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use super::connection::parse_time;
use super::connections::ThreadConnections;
use super::options::{Clock, Options};
use super::{RedisStore, key};
use crate::{RowChange, SharedTable, StoreError, TableError, TableVersion, TableWritten};

/// The timeout of a command.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout of reading all rows.
const ROWS_TIMEOUT: Duration = Duration::from_secs(5);

/// Rows written by one script call, and about as many as are read by one command: a longer call would
/// delay charges.
const ROWS_PER_CALL: usize = 50;

/// The most digits of a version.
const VERSION_DIGITS: usize = 64;

/// The digits of the time before a row's text.
const TIME_DIGITS: usize = 16;

const SCRIPT: &str = include_str!("lua/table.lua");

/// The names of the table's keys.
struct Names {
    rows: String,
    version: String,
}

impl Names {
    /// No state has these names: those of states have a shape after the braces.
    fn new(options: &Options) -> Names {
        let rows = format!("{}{{controls}}", options.prefix);
        Names { version: format!("{rows}version"), rows }
    }
}

impl RedisStore {
    /// Sends what `ask` sends to the server of a slot, over a connection that is up. Returns the reply, or an error
    /// of the server.
    ///
    /// # Errors
    ///
    /// No connection is up, or the server does not reply within a second.
    pub(super) async fn ask_server<T, F: Future<Output = RedisResult<T>>>(
        &self,
        slot: u16,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<RedisResult<T>, StoreError> {
        let all = || self.connections.iter().filter_map(OnceLock::get);
        let link = all().find_map(|connections| connections.serving(slot)?.link());
        let Some(link) = link else { return Err(StoreError::Unavailable) };
        let asked = tokio::time::timeout(TIMEOUT, link.ask(ask)).await;
        let reply = asked.map_err(|_| StoreError::TimedOut)?;
        let moved = |error: &RedisError| error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
        if reply.as_ref().is_err_and(moved) {
            all().for_each(ThreadConnections::refresh_soon);
        }
        Ok(reply)
    }

    /// Sends what `ask` sends to the server of the table.
    async fn ask_table<T, F: Future<Output = RedisResult<T>>>(
        &self,
        names: &Names,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, TableError> {
        let slot = key::slot(names.rows.as_bytes());
        let asked = self.ask_server(slot, ask).await?;
        asked.map_err(|error| self.table_failed(&error))
    }

    fn table_failed(&self, error: &RedisError) -> TableError {
        match error.code() {
            Some("NOPERM") => TableError::NotPermitted,
            Some("READONLY") => StoreError::ReadOnly.into(),
            Some("OOM") => StoreError::OutOfMemory.into(),
            Some("WRONGTYPE") => StoreError::WrongType.into(),
            _ => StoreError::Unavailable.into(),
        }
    }

    /// Waits until a connection to the server of a slot is up, or could not be made.
    pub(super) async fn server_tried(&self, slot: u16) {
        let mut changed = self.shared.changed.subscribe();
        let all = || self.connections.iter().filter_map(OnceLock::get);
        // It cannot fail: this store holds the sender.
        let _ = changed.wait_for(|()| all().any(|connections| connections.has_tried(slot))).await;
    }

    async fn read_version(&self) -> Result<TableVersion, TableError> {
        let options = &self.shared.options;
        let names = Names::new(options);
        let mut pipeline = redis::pipe();
        // Whatever has that name, no more of it is read than a version has.
        pipeline.cmd("GETRANGE").arg(&names.version).arg(0).arg(VERSION_DIGITS);
        if options.clock == Clock::Caller {
            let ask = |mut link| async move { pipeline.query_async(&mut link).await };
            let (version,): (String,) = self.ask_table(&names, ask).await?;
            return Ok(TableVersion { version, time: options.wall.now() });
        }
        pipeline.cmd("TIME");
        let ask = |mut link| async move { pipeline.query_async(&mut link).await };
        let (version, time): (String, Value) = self.ask_table(&names, ask).await?;
        let time = parse_time(&time).ok_or(StoreError::Corrupt)?;
        Ok(TableVersion { version, time })
    }

    /// Reads all rows, over one connection: the cursor of a scan means nothing to another server.
    async fn read_rows(&self) -> Result<Vec<(String, String)>, TableError> {
        let key = &Names::new(&self.shared.options).rows;
        let connections = self.connections.iter().find_map(OnceLock::get);
        let Some(connections) = connections else { return Err(StoreError::Unavailable.into()) };
        let destination = connections.destination(key::slot(key.as_bytes()));
        let scan = |mut link: MultiplexedConnection| async move {
            let (mut rows, mut cursor) = (HashMap::<String, Vec<u8>>::new(), 0);
            loop {
                let mut command = redis::cmd("HSCAN");
                command.arg(key).arg(cursor).arg("COUNT").arg(ROWS_PER_CALL);
                let (next, part): (u64, Vec<(String, Vec<u8>)>) =
                    command.query_async(&mut link).await?;
                for (name, row) in part {
                    // A scan may return a row twice. The greater one is newer: its time comes first.
                    let known = rows.entry(name).or_default();
                    *known = std::mem::take(known).max(row);
                }
                if next == 0 {
                    return Ok(rows);
                }
                cursor = next;
            }
        };
        let reading = async {
            let link = destination.connect(&self.shared).await?;
            let read = link.ask(scan).await;
            read.map_err(|error| {
                if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) {
                    connections.refresh_soon();
                } else {
                    self.shared.log.command_failed(&error);
                }
                self.table_failed(&error)
            })
        };
        let read = tokio::time::timeout(ROWS_TIMEOUT, reading).await;
        let rows = read.map_err(|_| StoreError::TimedOut)??;
        let text = |row: &[u8]| {
            String::from_utf8_lossy(row.get(TIME_DIGITS..).unwrap_or_default()).into_owned()
        };
        Ok(rows.into_iter().map(|(name, row)| (name, text(&row))).collect())
    }

    async fn write_rows(&self, changes: &[RowChange]) -> Result<TableWritten, TableError> {
        let options = &self.shared.options;
        let names = Names::new(options);
        let now = match options.clock {
            Clock::Server => 0,
            Clock::Caller => options.wall.now(),
        };
        let mut written: Option<TableWritten> = None;
        for changes in changes.chunks(ROWS_PER_CALL) {
            // The text and not its hash: `SCRIPT LOAD` needs a permission of its own.
            let mut call = redis::cmd("EVAL");
            call.arg(SCRIPT).arg(2).arg(&names.rows).arg(&names.version).arg(now);
            for RowChange { name, at, text } in changes {
                let at = format!("{at:0TIME_DIGITS$}");
                let row = text.as_ref().map_or_else(String::new, |text| format!("{at}{text}"));
                call.arg(name).arg(at).arg(row);
            }
            let ask = |mut link| async move { call.query_async(&mut link).await };
            let (before, after): (String, String) = self.ask_table(&names, ask).await?;
            match &mut written {
                // Another replica may have written between two calls: its rows must be read.
                Some(written) if written.after == before => written.after = after,
                Some(_) => return Ok(TableWritten { before: String::new(), after: String::new() }),
                None => written = Some(TableWritten { before, after }),
            }
        }
        Ok(written.unwrap_or_else(|| TableWritten { before: String::new(), after: String::new() }))
    }
}

impl SharedTable for RedisStore {
    fn tried(&self) -> BoxFuture<'_, ()> {
        let slot = key::slot(Names::new(&self.shared.options).rows.as_bytes());
        self.server_tried(slot).boxed()
    }

    fn version(&self) -> BoxFuture<'_, Result<TableVersion, TableError>> {
        self.read_version().boxed()
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, TableError>> {
        self.read_rows().boxed()
    }

    fn write<'a>(
        &'a self,
        changes: &'a [RowChange],
    ) -> BoxFuture<'a, Result<TableWritten, TableError>> {
        self.write_rows(changes).boxed()
    }
}
