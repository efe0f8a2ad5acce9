//! The calls of one connection that are in progress.
//!
//! They are polled on the connection's task. Those that are decided and those that wait for the client are kept
//! separately: clients can make the latter last, and they are polled only if more responses fit.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;

use super::call::{self, CallContext, CallOutcome, CallState, ClientWait, CompleteRequest};
use super::place::Place;
use super::refused::{is_call, refuse_method, refuse_request};
use super::resets::{ResetCounter, TooManyResets};
use super::stats::OtherMethod;
use super::{SHOULD_RATE_LIMIT, tonic_bridge};
use crate::net::ConnectionHandle;
use weir_store::Store;

/// Queued requests whose room is kept after a burst.
const KEPT_QUEUE_CAPACITY: usize = 64;

/// A connection's received requests, and its calls that wait. A trait: the types of the futures cannot be named.
pub(super) trait ConnectionCalls {
    fn queue(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>);
    fn has_queued(&self) -> bool;

    /// Whether started calls wait for the store or the client.
    fn has_waiting(&self) -> bool;

    /// Counts streams that were reset from here since the last call.
    fn count_reset_streams(&mut self) -> Result<(), TooManyResets>;

    /// Starts queued requests and resumes waiting calls, until all wait or no more responses fit.
    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), TooManyResets>;
}

struct Calls<'a, S, Decisions, ClientPool> {
    shared: &'a Arc<CallContext<S>>,
    handle: &'a ConnectionHandle,
    /// Received and not started.
    queued: VecDeque<(Request<RecvStream>, SendResponse<Bytes>)>,
    /// Complete requests that wait for the store.
    deciding: Decisions,
    waiting_for_client: ClientPool,
    /// Requests that were reset before they were read.
    unread: ResetCounter,
    /// Streams that were reset from here.
    reset_streams: ResetCounter,
}

pub(super) fn empty<'a, S: Store>(
    shared: &'a Arc<CallContext<S>>,
    handle: &'a ConnectionHandle,
) -> impl ConnectionCalls {
    Calls {
        shared,
        handle,
        queued: VecDeque::new(),
        deciding: Pool::new(|call: CompleteRequest| call.decide(shared.clone())),
        waiting_for_client: Pool::new(|call: ClientWait| call.finish(shared.clone())),
        unread: ResetCounter::new(),
        reset_streams: ResetCounter::new(),
    }
}

impl<S, Decisions, ClientPool> ConnectionCalls for Calls<'_, S, Decisions, ClientPool>
where
    S: Store,
    Decisions: CallPool<CompleteRequest>,
    ClientPool: CallPool<ClientWait>,
{
    fn queue(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        self.queued.push_back((request, respond));
    }

    fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    fn has_waiting(&self) -> bool {
        self.deciding.len() + self.waiting_for_client.len() > 0
    }

    fn count_reset_streams(&mut self) -> Result<(), TooManyResets> {
        match self.shared.outbound.take_resets() {
            0 => Ok(()),
            resets => self.count_resets(|calls| &mut calls.reset_streams, resets),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), TooManyResets> {
        if self.has_queued() || self.waiting_for_client.len() > 0 {
            self.shared.timer.start_poll();
        }
        let polled = self.poll_all(cx);
        self.shared.timer.end_poll();
        polled
    }
}

impl<S, Decisions, ClientPool> Calls<'_, S, Decisions, ClientPool>
where
    S: Store,
    Decisions: CallPool<CompleteRequest>,
    ClientPool: CallPool<ClientWait>,
{
    #[cold]
    fn count_resets(
        &mut self,
        counter: impl Fn(&mut Self) -> &mut ResetCounter,
        resets: u32,
    ) -> Result<(), TooManyResets> {
        if self.shared.outbound.take_caught_up() {
            self.unread.forgive();
            self.reset_streams.forgive();
        }
        counter(self).count_resets(resets)
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) -> Result<(), TooManyResets> {
        while let Some(state) = self.poll_next(cx) {
            self.proceed(state)?;
        }
        self.queued.shrink_to(KEPT_QUEUE_CAPACITY);
        Ok(())
    }

    fn proceed(&mut self, state: CallState) -> Result<(), TooManyResets> {
        let next = match state {
            CallState::Done(CallOutcome::Answered) => {
                self.unread.count_read();
                self.reset_streams.count_read();
                return Ok(());
            }
            CallState::Done(CallOutcome::Reset) => {
                return self.count_resets(|calls| &mut calls.unread, 1);
            }
            CallState::Complete(call) => {
                // More than the streams allow only where the client resets those that wait: they are not charged.
                if self.deciding.len() >= self.shared.grpc.limits.max_streams as usize {
                    return Ok(());
                }
                self.deciding.start(call)
            }
            CallState::WaitForClient(call) => {
                self.waiting_for_client.push(call);
                None
            }
        };
        next.map_or(Ok(()), |state| self.proceed(state))
    }

    /// Takes the next call as far as it goes without waiting. None where all calls wait.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<CallState> {
        let has_room = !self.shared.outbound.is_full();
        if has_room && let Some((request, respond)) = self.queued.pop_front() {
            self.handle.count_request();
            return Some(start(self.shared, request, respond));
        }
        if let Some(state) = self.deciding.poll_next(cx) {
            return Some(state);
        }
        if has_room { self.waiting_for_client.poll_next(cx) } else { None }
    }
}

fn start<S: Store>(
    shared: &CallContext<S>,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> CallState {
    let path = request.uri().path();
    if !is_call(&request) {
        refuse_request(shared, &request, respond);
    } else if path == SHOULD_RATE_LIMIT {
        return call::start(shared, request, respond);
    } else if OtherMethod::of(path).full_name().is_some() {
        tonic_bridge::start(shared, request, respond);
    } else {
        refuse_method(shared, &request, respond);
    }
    CallState::Done(CallOutcome::Answered)
}

/// Calls that wait for the same thing.
trait CallPool<Call> {
    /// Takes a call as far as it goes without waiting. None if it waits.
    fn start(&mut self, call: Call) -> Option<CallState>;

    /// Adds a call, which [`poll_next`](Self::poll_next) starts: a turn wakes the waker of its first poll.
    fn push(&mut self, call: Call);

    fn len(&self) -> usize;

    /// Resumes a call whose wait is over. None if all calls wait.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<CallState>;
}

/// The futures of async functions have no names, so the pool has them as a type parameter.
struct Pool<Start, Running: 'static> {
    start: Start,
    running: FuturesUnordered<Place<Running>>,
}

impl<Start, Running> Pool<Start, Running> {
    fn new<Call>(start: Start) -> Pool<Start, Running>
    where
        Start: Fn(Call) -> Running,
    {
        Pool { start, running: FuturesUnordered::new() }
    }
}

impl<Call, Start, Running> CallPool<Call> for Pool<Start, Running>
where
    Start: Fn(Call) -> Running,
    Running: Future<Output = CallState>,
{
    #[inline]
    fn start(&mut self, call: Call) -> Option<CallState> {
        let mut call = Place::new(|| (self.start)(call));
        // Those that wait are polled once more in the pool, which wakes them.
        match call.poll_unpin(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(state) => Some(state),
            Poll::Pending => {
                self.running.push(call);
                None
            }
        }
    }

    fn push(&mut self, call: Call) {
        self.running.push(Place::new(|| (self.start)(call)));
    }

    fn len(&self) -> usize {
        self.running.len()
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<CallState> {
        if self.running.is_empty() {
            return None;
        }
        match self.running.poll_next_unpin(cx) {
            Poll::Ready(state) => state,
            Poll::Pending => None,
        }
    }
}
