//! The texts that replicas of weir publish for each other in Redis, with their top keys: a key of each replica, and a
//! hash of their ids and of the secret with which they hash values, in one slot. All expire when no replica writes.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, RedisResult};

use super::admin::eval;
use super::key;
use super::options::RedisOptions;
use super::store::RedisStore;
use weir_store::StoreError;
use weir_store::shared::{MAX_TEXT_BYTES, ReplicaTextError, ReplicaTexts};

/// How long a text is kept unless it is written again.
const TEXT_KEPT_FOR: Duration = Duration::from_secs(10);

const MAX_TEXTS: usize = 256;

const TIMEOUT: Duration = Duration::from_secs(1);

const IDS_PER_CALL: usize = 1_000;

/// The most commands that read ids: there are more of them only if another program writes them.
const MAX_SCANS: usize = 16;

const SECRET: &str = "secret";

const SCRIPT: &str = include_str!("lua/texts.lua");

/// Returns the name of the hash; the key of a text is that with the replica's id. No state has such a name.
fn hash_key(options: &RedisOptions) -> String {
    format!("{}{{top}}", options.prefix)
}

fn texts_slot(options: &RedisOptions) -> u16 {
    key::slot(hash_key(options).as_bytes())
}

/// Errors of a server that may accept the command later. Redis 6 wraps them in errors of the script.
const PASSING: &str =
    "ASK BUSY CLUSTERDOWN LOADING MASTERDOWN MISCONF MOVED NOAUTH NOREPLICAS OOM READONLY TRYAGAIN";

/// Returns what an error means for later texts: a lack of permission, or a key that holds something else, stays.
fn text_error(error: &RedisError) -> ReplicaTextError {
    let text = error.to_string();
    let is_word = |char: char| char.is_ascii_alphanumeric();
    let has = |code: &str| text.split(|char| !is_word(char)).any(|word| word == code);
    let is_passing = |code: &str| PASSING.split(' ').any(|passing| passing == code || has(passing));
    match error.code() {
        Some(code) if !is_passing(code) => ReplicaTextError::Refused(text),
        _ => StoreError::Unavailable.into(),
    }
}

async fn read_texts(
    mut link: MultiplexedConnection,
    hash: String,
    own: &str,
) -> RedisResult<Vec<String>> {
    let (mut ids, mut cursor) = (Vec::new(), 0_u64);
    for _ in 0..MAX_SCANS {
        let mut scan = redis::cmd("HSCAN");
        scan.arg(&hash).arg(cursor).arg("COUNT").arg(IDS_PER_CALL);
        let (next, part): (u64, Vec<(String, Vec<u8>)>) = scan.query_async(&mut link).await?;
        ids.extend(part.into_iter().map(|(id, _)| id).filter(|id| id != own && id != SECRET));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    // A scan may return a field twice.
    ids.sort_unstable();
    ids.dedup();
    ids.truncate(MAX_TEXTS);
    let mut pipeline = Pipeline::with_capacity(ids.len());
    for id in &ids {
        // Whatever has that name, no more of it is read than a text has.
        pipeline.cmd("GETRANGE").arg(format!("{hash}{id}")).arg(0).arg(MAX_TEXT_BYTES - 1);
    }
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let read: Vec<RedisResult<Vec<u8>>> = pipeline.ignore_errors().query_async(&mut link).await?;
    let mut texts = Vec::with_capacity(read.len());
    for text in read {
        match text {
            // Of another program.
            Err(error) if error.code() == Some("WRONGTYPE") => {}
            text => texts.extend(String::from_utf8(text?).ok().filter(|text| !text.is_empty())),
        }
    }
    Ok(texts)
}

impl ReplicaTexts for RedisStore {
    fn tried(&self) -> BoxFuture<'_, ()> {
        self.server_tried(texts_slot(&self.shared.options)).boxed()
    }

    fn publish<'a>(
        &'a self,
        secret: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<String, ReplicaTextError>> {
        async move {
            let hash = hash_key(&self.shared.options);
            let text_key = format!("{hash}{}", self.replica_id);
            let mut command = eval(SCRIPT, &[hash, text_key]);
            command.arg(&self.replica_id).arg(self.script_time());
            command.arg(TEXT_KEPT_FOR.as_millis() as u64).arg(secret).arg(text);
            let ask = |mut link| async move { command.query_async(&mut link).await };
            let asked = self.ask_server(texts_slot(&self.shared.options), TIMEOUT, ask).await?;
            asked.map_err(|error| text_error(&error))
        }
        .boxed()
    }

    fn others(&self) -> BoxFuture<'_, Result<Vec<String>, ReplicaTextError>> {
        async move {
            let hash = hash_key(&self.shared.options);
            let ask = |link| read_texts(link, hash, &self.replica_id);
            let asked = self.ask_server(texts_slot(&self.shared.options), TIMEOUT, ask).await?;
            asked.map_err(|error| text_error(&error))
        }
        .boxed()
    }
}
