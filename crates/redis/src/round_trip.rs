//! An open connection to Redis, and a round trip over it: sends a batch of commands, answers its charges, and returns
//! what is left to do. Probes show how fast the server answers.

mod spans;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{AsyncStream, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, RedisConnectionInfo, RedisError,
    RedisResult, ServerError, ServerErrorKind, Value, from_redis_value_ref,
};
use smallvec::SmallVec;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use self::spans::TripSpans;
use super::batch::CommandBatch;
use super::batch::script_call::{BatchContext, ScriptCall};
use super::context::RedisContext;
use super::counter::OpenWindows;
use super::options::{ClockSource, Endpoint};
use super::pending_charge::{PendingCharge, Reply, fail_all};
use super::refusal::{refuses_all, store_error, words_of};
use super::script::Scripts;
use weir_limit::{Micros, SECOND};
use weir_store::StoreError;

/// A server that has not answered for this long is disconnected.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The milliseconds that states are kept longer where limits go by the clocks of replicas, for those that are behind.
pub(super) const CALLER_CLOCK_SLACK_MS: u32 = 10_000;

pub(super) type Socket = Pin<Box<dyn AsyncStream + Send>>;

/// An open connection. It ends with its last clone.
#[derive(Clone, Debug)]
pub(super) struct Link {
    client: MultiplexedConnection,
    task: Arc<Task>,
}

/// The task of a connection, which ends with it.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// Returns whether the server has not closed the connection, as far as is known.
    pub fn is_open(&self) -> bool {
        !self.task.0.is_finished()
    }

    pub(super) async fn log_in(socket: Socket, login: &RedisConnectionInfo) -> RedisResult<Link> {
        // A round trip has its own timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (client, driver) =
            MultiplexedConnection::new_with_config(login, socket, config).await?;
        Ok(Link { client, task: Arc::new(Task(tokio::spawn(driver))) })
    }

    pub async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.client).await
    }

    /// Sends commands. An error of the server is a reply.
    pub async fn send_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.client.send_packed_commands(commands, 0, commands.len()).await
    }

    /// Returns the client, which does not keep the connection open.
    pub fn client(&self) -> MultiplexedConnection {
        self.client.clone()
    }
}

/// Parses the reply to `TIME`; none if it is not Redis's: Envoy's redis_proxy has the whole time in the microseconds.
pub(super) fn parse_time(reply: &Value) -> Option<Micros> {
    let (seconds, micros): (u64, u64) = from_redis_value_ref(reply).ok()?;
    (micros < SECOND).then(|| seconds.checked_mul(SECOND)?.checked_add(micros))?
}

/// A reply, by when it came.
pub(super) enum Timed<T> {
    InTime(T),
    /// The reply came later than `slow_after`.
    Late(T),
    /// No reply came within [`STALL_TIMEOUT`] after `slow_after`.
    Stalled,
}

/// Waits for a reply; calls `on_slow` as soon as it takes longer than `slow_after`.
pub(super) async fn watch<T>(
    reply: impl Future<Output = T>,
    slow_after: Duration,
    on_slow: impl FnOnce(),
) -> Timed<T> {
    let mut reply = pin!(reply);
    if let Ok(reply) = timeout(slow_after, &mut reply).await {
        return Timed::InTime(reply);
    }
    on_slow();
    match timeout(STALL_TIMEOUT, reply).await {
        Ok(reply) => Timed::Late(reply),
        Err(_) => Timed::Stalled,
    }
}

/// Sends a command that a server answers at once if it is well.
pub(super) async fn probe(link: &mut Link, shared: &RedisContext) -> RedisResult<()> {
    if !shared.is_proxy {
        return link.query(&redis::cmd("PING")).await;
    }
    // A proxy answers PING itself.
    let key = format!("{}{{probe}}", shared.options.prefix);
    match link.query(redis::cmd("EVAL").arg("return 1").arg(1).arg(key)).await {
        // One of several servers fails, and its keys with it.
        Err(error) if error.code().is_some() => Ok(()),
        replied => replied,
    }
}

/// Sends a probe, and waits for long; an error reply is a late answer.
pub(super) async fn timed_probe(link: &mut Link, shared: &RedisContext) -> Timed<RedisResult<()>> {
    let (sent, slow_after) = (Instant::now(), shared.options.slow_after);
    match timeout(STALL_TIMEOUT.max(slow_after), probe(link, shared)).await {
        Ok(Ok(())) if sent.elapsed() <= slow_after => Timed::InTime(Ok(())),
        Ok(reply) => Timed::Late(reply),
        Err(_) => Timed::Stalled,
    }
}

/// An open connection, with what is known about its server.
pub(super) struct Session {
    pub link: Link,
    pub endpoint: Endpoint,
    pub connected_at: Instant,
    scripts: Scripts,
    open_windows: OpenWindows,
}

/// The outcome of a round trip, besides the answers.
#[derive(Default)]
pub(super) struct RoundTrip {
    pub read_only: bool,
    /// Why the server refuses all commands for now.
    pub refusal: Option<String>,
    pub redirects: Vec<Redirect>,
    /// Recorded requests for which the server replied with an error, and its code.
    pub errors: Vec<(Arc<Reply>, String)>,
}

/// Charges that a node did not count, because another one serves their slot.
pub(super) struct Redirect {
    pub kind: ServerErrorKind,
    /// The node's error; its details name the slot and the other node.
    pub error: ServerError,
    pub charges: SmallVec<[PendingCharge; 1]>,
}

/// Returns the kind of an error by which a node of a cluster redirects: `Moved` where the slot is on another node;
/// while it is being moved `Ask` where this key is on the other node already, and `TryAgain` where only some of the
/// keys are on this node.
pub(super) fn redirect_kind(error: &ServerError) -> Option<ServerErrorKind> {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    error.kind().filter(|kind| matches!(kind, Moved | Ask | TryAgain))
}

impl Session {
    pub fn new(link: Link, endpoint: Endpoint) -> Session {
        let (scripts, open_windows) = Default::default();
        Session { link, endpoint, connected_at: Instant::now(), scripts, open_windows }
    }

    pub fn build_batch(&self, shared: &RedisContext, charges: Vec<PendingCharge>) -> CommandBatch {
        // Before the time that Redis charges at is read, wherever.
        charges.iter().filter_map(|charge| charge.reply.lease()).for_each(|lease| lease.set_sent());
        let wall = shared.options.wall.now();
        let (now, slack, estimate) = match shared.options.clock {
            ClockSource::Server => (0, 0, self.open_windows.estimate_time()),
            ClockSource::Caller => (wall, CALLER_CLOCK_SLACK_MS, Some(wall)),
        };
        let is_proxy = shared.is_proxy;
        // A proxy answers TIME itself, if at all: scripts alone count.
        let estimate = estimate.filter(|_| !is_proxy);
        let context = BatchContext { now, wall, slack, is_proxy };
        let batch = CommandBatch::build(charges, context, &self.open_windows, estimate);
        let (charges, keys, plain) = batch.len();
        let add = |to: &AtomicU64, more: usize| to.fetch_add(more as u64, Ordering::Relaxed);
        add(&shared.counts.calls, batch.calls.len());
        add(&shared.counts.charges, charges);
        add(&shared.counts.keys, keys);
        add(&shared.counts.plain, plain);
        // With no charges pending, nothing is sent.
        if keys > 0 {
            shared.batch_keys.record(keys as u64);
        }
        batch
    }

    /// Sends a batch and answers its charges. Leaves in `batch` what has to be sent again: calls whose script the
    /// server does not have, what increments leave to the script, and what cancels reservations of requests that were
    /// dropped. If there are no replies, the charges are answered nevertheless, and `batch` still holds its increments,
    /// which may or may not have been made.
    pub async fn send(
        &mut self,
        shared: &RedisContext,
        batch: &mut CommandBatch,
    ) -> Result<RoundTrip, RedisError> {
        let ask_time =
            !batch.increments.is_empty() && matches!(shared.options.clock, ClockSource::Server);
        let pipeline = pipeline(&mut self.scripts, batch, ask_time);
        shared.counts.trips.fetch_add(1, Ordering::Relaxed);
        let is_recorded = !batch.recorded.is_empty();
        let spans = is_recorded.then(|| TripSpans::start(batch, &pipeline, &self.endpoint));
        let sent = std::time::Instant::now();
        let replies = self.link.send_all(&pipeline).await;
        shared.trip_times.record(sent.elapsed().as_micros() as u64);
        let mut replies = match replies {
            Ok(replies) => replies,
            Err(error) => {
                if let Some(spans) = spans {
                    spans.fail(error.code().unwrap_or("disconnected"));
                }
                for increment in &batch.increments {
                    increment.fail(StoreError::Unavailable);
                }
                let charges = batch.calls.drain(..).flat_map(ScriptCall::into_charges);
                fail_all(charges, StoreError::Unavailable);
                return Err(error);
            }
        };
        let now = match ask_time {
            true => replies.pop().and_then(|reply| parse_time(&reply)),
            false => Some(batch.context.now),
        };
        let trip = self.answer(shared, batch, replies, now);
        if let Some(spans) = spans {
            spans.end(&trip.errors);
        }
        Ok(trip)
    }

    /// Answers the charges of a batch from the replies to its commands; `now` is the time after the increments. Leaves
    /// in `batch` what has to be sent again.
    fn answer(
        &mut self,
        shared: &RedisContext,
        batch: &mut CommandBatch,
        replies: Vec<Value>,
        now: Option<Micros>,
    ) -> RoundTrip {
        let mut trip = RoundTrip::default();
        let mut replies = replies.into_iter();
        let (mut calls_again, mut for_scripts) = (Vec::new(), Vec::new());
        for mut call in std::mem::take(&mut batch.calls) {
            if call.asking {
                replies.next();
            }
            match replies.next().unwrap_or(Value::Nil) {
                Value::BulkString(reply) => {
                    let answered = call.answer(&reply, &mut self.open_windows);
                    for_scripts.extend(answered.orphans);
                    for (error, key) in answered.failures {
                        shared.log.charge_failed(error, &key, &answered.message);
                        trip.read_only |= error == StoreError::ReadOnly;
                    }
                }
                Value::ServerError(error)
                    if error.kind() == Some(ServerErrorKind::NoScript) && !call.script_missing =>
                {
                    call.script_missing = true;
                    calls_again.push(call);
                }
                other => trip.not_answered(shared, other, call.into_charges()),
            }
        }
        if let Some(now) = now {
            self.open_windows.set_time(now);
        }
        for mut increment in std::mem::take(&mut batch.increments) {
            match (replies.next().unwrap_or(Value::Nil), now) {
                (Value::Int(new), Some(now)) => {
                    let (left, error) = increment.answer(new, now, &mut self.open_windows);
                    if let Some(error) = error {
                        left.iter()
                            .for_each(|charge| shared.log.charge_failed(error, &charge.key, ""));
                    }
                    for_scripts.extend(left);
                }
                (other, _) => trip.not_answered(shared, other, increment.take_charges()),
            }
        }
        let recorded = std::mem::take(&mut batch.recorded);
        *batch = CommandBatch::build(for_scripts, batch.context, &self.open_windows, None);
        shared.counts.calls.fetch_add(batch.calls.len() as u64, Ordering::Relaxed);
        if !calls_again.is_empty() {
            // Those that are answered now get no further span.
            batch.recorded = recorded;
        }
        batch.calls.append(&mut calls_again);
        trip
    }
}

fn pipeline(scripts: &mut Scripts, batch: &CommandBatch, ask_time: bool) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(batch.calls.len() + batch.increments.len() + 1);
    for call in &batch.calls {
        let (script, sent) = scripts.get(call.kind);
        let (name, script) = match sent && !call.script_missing {
            true => ("EVALSHA", &*script.hash),
            // Runs the script; from then on the server has it.
            false => ("EVAL", &*script.text),
        };
        if call.asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(call.command(name, script));
    }
    for increment in &batch.increments {
        pipeline.add_command(increment.command());
    }
    if ask_time {
        pipeline.cmd("TIME");
    }
    pipeline
}

impl RoundTrip {
    /// Handles a reply that is not an answer: redirects or fails the charges.
    fn not_answered(
        &mut self,
        shared: &RedisContext,
        reply: Value,
        charges: impl IntoIterator<Item = PendingCharge>,
    ) {
        let charges: SmallVec<[PendingCharge; 1]> = charges.into_iter().collect();
        let Value::ServerError(error) = reply else {
            self.refusal = Some(format!("unexpected reply {reply:?}"));
            return fail_all(charges, StoreError::Corrupt);
        };
        let recorded = charges.iter().filter(|charge| charge.reply.is_recorded());
        self.errors.extend(recorded.map(|charge| (charge.reply.clone(), error.code().to_owned())));
        if let Some(kind) = redirect_kind(&error) {
            return self.redirects.push(Redirect { kind, error, charges });
        }
        let text = words_of(&error.clone().into());
        let failed = store_error(&text);
        self.read_only |= failed == StoreError::ReadOnly;
        // Behind a proxy it is one of several servers.
        if refuses_all(&error) && !shared.is_proxy {
            self.refusal = Some(text);
        } else if let Some(charge) = charges.first() {
            shared.log.charge_failed(failed, &charge.key, &text);
        }
        fail_all(charges, failed);
    }
}
