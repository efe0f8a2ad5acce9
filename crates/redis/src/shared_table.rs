//! The table of operators' controls (blocks, allows, limits) that all replicas of weir share in Redis: a hash of its
//! rows and a version, in one slot. Rows may be megabytes: so that no charge waits long, they come and go in parts.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};

use super::admin::{eval, is_moved};
use super::key;
use super::options::{ClockSource, RedisOptions};
use super::refusal::{store_error, words_of};
use super::round_trip::parse_time;
use super::store::RedisStore;
use weir_store::{
    RowChange, SharedTable, StoreError, TableError, TableRow, TableVersion, TableWritten,
};

const TIMEOUT: Duration = Duration::from_secs(1);

const ROWS_TIMEOUT: Duration = Duration::from_secs(5);

/// Rows written by one script call, and about as many as are read by one command: a longer call would delay charges.
const ROWS_PER_CALL: usize = 50;

const VERSION_DIGITS: usize = 64;

/// The digits of the time before a row's text.
const TIME_DIGITS: usize = 16;

const SCRIPT: &str = include_str!("lua/table.lua");

struct Names {
    rows: String,
    version: String,
}

impl Names {
    /// No state has these names: a state's has a shape after the braces.
    fn new(options: &RedisOptions) -> Names {
        let rows = format!("{}{{controls}}", options.prefix);
        Names { version: format!("{rows}version"), rows }
    }
}

impl RedisStore {
    /// Sends what `ask` sends to the server of the table.
    async fn ask_table<T, F: Future<Output = RedisResult<T>>>(
        &self,
        names: &Names,
        limit: Duration,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, TableError> {
        let slot = key::slot(names.rows.as_bytes());
        let asked = self.ask_server(slot, limit, ask).await?;
        asked.map_err(|error| match store_error(&words_of(&error)) {
            StoreError::NotPermitted => TableError::NotPermitted,
            error => error.into(),
        })
    }

    async fn write_rows(&self, changes: &[RowChange]) -> Result<TableWritten, TableError> {
        let names = Names::new(&self.shared.options);
        let mut call = eval(SCRIPT, &[&names.rows, &names.version]);
        call.arg(self.script_time());
        for RowChange { name, at, is_new, text } in changes {
            call.arg(name).arg(at).arg(u8::from(*is_new)).arg(text.as_deref().unwrap_or_default());
        }
        let ask = |mut link| async move { call.query_async(&mut link).await };
        let (before, after, is_moved): (String, String, bool) =
            self.ask_table(&names, TIMEOUT, ask).await?;
        Ok(match is_moved {
            true => TableWritten::Unread { before },
            false => TableWritten::Alone { before, after },
        })
    }
}

/// Reads all rows, over one connection: the cursor of a scan means nothing to another server.
async fn scan(mut link: MultiplexedConnection, key: &str) -> RedisResult<HashMap<String, Vec<u8>>> {
    let (mut rows, mut cursor) = (HashMap::<String, Vec<u8>>::new(), 0);
    loop {
        let mut command = redis::cmd("HSCAN");
        command.arg(key).arg(cursor).arg("COUNT").arg(ROWS_PER_CALL);
        let (next, part): (u64, Vec<(String, Vec<u8>)>) = command.query_async(&mut link).await?;
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
}

impl SharedTable for RedisStore {
    fn tried(&self) -> BoxFuture<'_, ()> {
        let slot = key::slot(Names::new(&self.shared.options).rows.as_bytes());
        self.server_tried(slot).boxed()
    }

    fn version(&self) -> BoxFuture<'_, Result<TableVersion, TableError>> {
        async move {
            let options = &self.shared.options;
            let names = Names::new(options);
            let mut pipeline = redis::pipe();
            // Whatever has that name, no more of it is read than a version has.
            pipeline.cmd("GETRANGE").arg(&names.version).arg(0).arg(VERSION_DIGITS);
            if options.clock == ClockSource::Caller {
                let ask = |mut link| async move { pipeline.query_async(&mut link).await };
                let (version,): (String,) = self.ask_table(&names, TIMEOUT, ask).await?;
                return Ok(TableVersion { version, time: options.wall.now() });
            }
            pipeline.cmd("TIME");
            let ask = |mut link| async move { pipeline.query_async(&mut link).await };
            let (version, time): (String, Value) = self.ask_table(&names, TIMEOUT, ask).await?;
            let time = parse_time(&time).ok_or(StoreError::Corrupt)?;
            Ok(TableVersion { version, time })
        }
        .boxed()
    }

    fn rows(&self) -> BoxFuture<'_, Result<Vec<TableRow>, TableError>> {
        async move {
            let names = Names::new(&self.shared.options);
            let ask = |link| async {
                let scanned = scan(link, &names.rows).await;
                scanned.inspect_err(|error| {
                    if !is_moved(error) {
                        self.shared.log.command_failed(error);
                    }
                })
            };
            let rows = self.ask_table(&names, ROWS_TIMEOUT, ask).await?;
            let read = |(name, row): (String, Vec<u8>)| {
                let (at, text) = row.split_at_checked(TIME_DIGITS).unwrap_or_default();
                let at = str::from_utf8(at).ok().and_then(|at| at.parse().ok()).unwrap_or(0);
                TableRow { name, at, text: String::from_utf8_lossy(text).into_owned() }
            };
            Ok(rows.into_iter().map(read).collect())
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        changes: &'a [RowChange],
    ) -> BoxFuture<'a, Result<TableWritten, TableError>> {
        async move {
            let (first, rest) = changes.split_at(changes.len().min(ROWS_PER_CALL));
            let mut written = self.write_rows(first).await?;
            for changes in rest.chunks(ROWS_PER_CALL) {
                written = written.and_then(self.write_rows(changes).await?);
            }
            Ok(written)
        }
        .boxed()
    }
}
