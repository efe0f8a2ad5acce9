//! The gRPC calls of one connection that are in progress. They are polled on the connection's task.
//!
//! Calls that wait for the store and calls that wait for their client are kept separately: clients can make the latter
//! last, and the latter are polled only if there is room for more unread responses.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{Method, Request};

use super::call::{self, CallContext, CallOutcome, CallState, ClientWait, CompleteRequest};
use super::refused::{refuse_method, refuse_request};
use super::resets::{ResetCounter, TooManyResets};
use super::tonic_bridge;
use crate::net::ConnectionHandle;
use weir_store::Store;

pub(super) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The capacity of the queue of requests that is kept after a burst.
const KEPT_QUEUE_CAPACITY: usize = 64;

/// A connection's received requests, and its calls that wait. A trait, since the types of their futures have no names.
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
    } else if shared.grpc.serves(path) {
        tonic_bridge::start(shared, request, respond);
    } else {
        refuse_method(shared, &request, respond);
    }
    CallState::Done(CallOutcome::Answered)
}

fn is_call(request: &Request<RecvStream>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE);
    *request.method() == Method::POST && content_type.is_some_and(|kind| is_grpc(kind.as_bytes()))
}

/// Whether a content type is that of gRPC, and not that of gRPC-Web or of messages in JSON.
fn is_grpc(content_type: &[u8]) -> bool {
    match content_type.strip_prefix(b"application/grpc") {
        Some([] | [b';', ..]) => true,
        Some([b'+', codec @ ..]) => !codec.starts_with(b"json"),
        _ => false,
    }
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

/// The places of one kind of future that a thread keeps: of what its connections usually have in flight together.
const MAX_SPARE: usize = 128;

type Slot<F> = Pin<Box<Option<F>>>;

thread_local! {
    /// A `Vec<Slot<F>>` for each kind of future.
    static SPARE: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// The future of a call: made in its place, polled there at once, and never moved while it waits. The place is none only
/// while this is dropped.
///
/// A thread keeps the places of calls that have ended for the next ones. So a call that need not wait allocates nothing.
/// The places of a batch of calls that waited would else be returned to the system together, and faulted in again for
/// the next batch.
struct Place<F: 'static>(Option<Slot<F>>);

impl<F: 'static> Place<F> {
    /// Makes the future where it stays: one that is passed is copied once more.
    #[inline]
    fn new(make: impl FnOnce() -> F) -> Place<F> {
        let mut slot = with_spare(Vec::pop).flatten().unwrap_or_else(|| Box::pin(None));
        slot.set(Some(make()));
        Place(Some(slot))
    }
}

impl<F: Future> Future for Place<F> {
    type Output = F::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.0.as_mut().and_then(|slot| slot.as_mut().as_pin_mut()) {
            Some(future) => future.poll(context),
            None => Poll::Pending,
        }
    }
}

impl<F: 'static> Drop for Place<F> {
    fn drop(&mut self) {
        let Some(mut slot) = self.0.take() else { return };
        slot.set(None);
        with_spare(|spare| {
            if spare.len() < MAX_SPARE {
                spare.push(slot);
            }
        });
    }
}

/// Passes this thread's spare places to `then`; none if the thread ends.
#[inline]
fn with_spare<F: 'static, T>(then: impl FnOnce(&mut Vec<Slot<F>>) -> T) -> Option<T> {
    let find = |kinds: &RefCell<Vec<Box<dyn Any>>>| {
        let mut kinds = kinds.borrow_mut();
        if let Some(spare) = kinds.iter_mut().find_map(|kind| kind.downcast_mut()) {
            return Some(then(spare));
        }
        let mut spare = Vec::new();
        let result = then(&mut spare);
        kinds.push(Box::new(spare));
        Some(result)
    };
    SPARE.try_with(find).ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;

    fn spare<F: 'static>(_: &F) -> usize {
        with_spare(|spare: &mut Vec<Slot<F>>| spare.len()).unwrap()
    }

    #[test]
    fn a_place_is_used_again_and_some_are_kept() {
        let number = ready(1);
        for _ in 0..3 {
            assert_eq!(Place::new(|| number.clone()).now_or_never(), Some(1));
            assert_eq!(spare(&number), 1);
        }
        let places: Vec<_> = (0..MAX_SPARE + 10).map(|_| Place::new(|| number.clone())).collect();
        assert_eq!(spare(&number), 0);
        drop(places);
        assert_eq!(spare(&number), MAX_SPARE);
        let other = pending::<()>();
        assert_eq!(spare(&other), 0, "another kind");
    }

    #[test]
    fn what_waits_is_dropped_with_its_place() {
        let held = std::rc::Rc::new(());
        let clone = held.clone();
        let mut place = Place::new(|| async move {
            pending::<()>().await;
            drop(clone);
        });
        assert_eq!((&mut place).now_or_never(), None);
        drop(place);
        assert_eq!(std::rc::Rc::strong_count(&held), 1);
    }
}
