//! A trip: all commands at once, and what is left of them in a second one.

use std::sync::atomic::Ordering;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, ServerError, ServerErrorKind, Value};
use smallvec::SmallVec;

use super::calls::{Item, Load, load};
use super::cluster::Redirects;
use super::connect::time_of;
use super::known::Known;
use super::lane::Lost;
use super::script::Scripts;
use super::{Clock, Shared};
use crate::limit::Micros;
use crate::store::StoreError;

/// What a connection knows of its server.
#[derive(Debug, Default)]
pub(super) struct Met {
    pub scripts: Scripts,
    pub known: Known,
}

/// How a trip went.
#[derive(Default)]
pub(super) struct Trip {
    pub failed: Option<Lost>,
    /// The server answers, but not to this.
    pub refused: Option<String>,
}

/// Makes one trip, and another one for calls whose script the server does not know and for what
/// plain commands leave to do. What is still in `load` afterwards got no reply.
pub(super) async fn run(
    shared: &Shared,
    met: &mut Met,
    mut connection: MultiplexedConnection,
    load: &mut Load,
    redirects: Option<&Redirects>,
) -> Trip {
    let mut trip = Trip::default();
    while !load.is_empty() {
        let ask_time = !load.plain.is_empty() && shared.options.clock == Clock::Server;
        let pipeline = pipeline(&mut met.scripts, load, ask_time);
        shared.counts.trips.fetch_add(1, Ordering::Relaxed);
        let mut replies = match connection.send_packed_commands(&pipeline, 0, pipeline.len()).await
        {
            Ok(replies) => replies,
            Err(error) => {
                load.plain.iter().for_each(|plain| plain.refuse(StoreError::Unavailable));
                for call in load.calls.drain(..) {
                    refuse(call.into_items(), StoreError::Unavailable);
                }
                if error.is_unrecoverable_error() {
                    trip.failed = Some(Lost::Error(error));
                } else {
                    trip.refused = Some(error.to_string());
                }
                return trip;
            }
        };
        let now = match ask_time {
            true => replies.pop().and_then(|reply| time_of(&reply)),
            false => Some(load.times.now),
        };
        trip = answer(shared, met, load, replies, now, trip, redirects);
    }
    trip
}

fn pipeline(scripts: &mut Scripts, load: &Load, ask_time: bool) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(load.calls.len() + load.plain.len() + 1);
    for call in &load.calls {
        let (script, told) = scripts.get(call.kind);
        let (name, script) = match told && !call.unknown {
            true => ("EVALSHA", &*script.hash),
            // Runs the script, and the server knows it from then on.
            false => ("EVAL", &*script.text),
        };
        if call.asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(call.command(name, script));
    }
    for plain in &load.plain {
        pipeline.add_command(plain.command());
    }
    if ask_time {
        pipeline.cmd("TIME");
    }
    pipeline
}

/// Tells who waits what was replied; `now` is the time after what is plain. Leaves in `load` what
/// is to be sent again.
fn answer(
    shared: &Shared,
    met: &mut Met,
    load_: &mut Load,
    replies: Vec<Value>,
    now: Option<Micros>,
    mut trip: Trip,
    redirects: Option<&Redirects>,
) -> Trip {
    let mut replies = replies.into_iter();
    let mut again = Vec::new();
    for mut call in std::mem::take(&mut load_.calls) {
        if call.asking {
            replies.next();
        }
        match replies.next().unwrap_or(Value::Nil) {
            Value::BulkString(reply) => {
                let (failures, reason) = call.answer(&reply, &mut met.known);
                for (failed, key) in failures {
                    shared.count(failed);
                    shared.log.key_failed(failed, &key, reason);
                    if failed == StoreError::ReadOnly {
                        trip.failed = Some(Lost::ReadOnly);
                    }
                }
            }
            Value::ServerError(error)
                if error.kind() == Some(ServerErrorKind::NoScript) && !call.unknown =>
            {
                call.unknown = true;
                again.push(call);
            }
            other => trip.not_done(shared, other, call.into_items(), redirects),
        }
    }
    if let Some(now) = now {
        met.known.heard(now);
    }
    let mut left = Vec::new();
    for mut plain in std::mem::take(&mut load_.plain) {
        match (replies.next().unwrap_or(Value::Nil), now) {
            (Value::Int(new), Some(now)) => {
                let (more, failed) = plain.answer(new, now, &mut met.known);
                if let Some(failed) = failed {
                    shared.count(failed);
                    more.iter().for_each(|item| shared.log.key_failed(failed, &item.key, &[]));
                }
                left.extend(more);
            }
            (other, _) => trip.not_done(shared, other, plain.take_items(), redirects),
        }
    }
    *load_ = load(left, load_.times, &met.known, None);
    shared.counts.calls.fetch_add(load_.calls.len() as u64, Ordering::Relaxed);
    load_.calls.append(&mut again);
    trip
}

impl Trip {
    /// What to do where a reply is no answer.
    fn not_done(
        &mut self,
        shared: &Shared,
        reply: Value,
        items: impl IntoIterator<Item = Item>,
        redirects: Option<&Redirects>,
    ) {
        let items: SmallVec<[Item; 1]> = items.into_iter().collect();
        let Value::ServerError(error) = reply else {
            self.refused = Some(format!("it replied {reply:?}"));
            shared.count(StoreError::Corrupt);
            return refuse(items, StoreError::Corrupt);
        };
        if let Some(redirects) = redirects
            && let Some(
                kind @ (ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::TryAgain),
            ) = error.kind()
        {
            return redirects.send(items, kind, error.details().unwrap_or(""));
        }
        let failed = failed(&error);
        // What is about the server, and not about this command.
        let all =
            matches!(error.code(), "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "NOAUTH");
        match failed {
            StoreError::ReadOnly => self.failed = Some(Lost::ReadOnly),
            StoreError::Unavailable if all => self.refused = Some(error.to_string()),
            StoreError::Unavailable => shared.log.command_failed(&error),
            _ => {
                items.iter().take(1).for_each(|item| shared.log.key_failed(failed, &item.key, &[]))
            }
        }
        shared.count(failed);
        refuse(items, failed);
    }
}

fn failed(error: &ServerError) -> StoreError {
    let says = |text| error.details().is_some_and(|details| details.contains(text));
    match error.code() {
        "READONLY" => StoreError::ReadOnly,
        "OOM" => StoreError::OutOfMemory,
        "WRONGTYPE" => StoreError::WrongType,
        // Of INCRBY.
        "ERR" if says("not an integer") || says("would overflow") => StoreError::Corrupt,
        _ => StoreError::Unavailable,
    }
}

fn refuse(items: impl IntoIterator<Item = Item>, failed: StoreError) {
    for item in items {
        item.reply.set(item.index, Err(failed), 0);
    }
}
