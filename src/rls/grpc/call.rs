//! One call of `ShouldRateLimit`: reads its message, has it decided, and sends the response. `calls` polls it.
//!
//! ```text
//!        request is incomplete                 store answers       client does not read
//! start ───▶ WaitForClient ───▶ Complete ───▶ decide ───▶ send ───▶ WaitForClient ───▶ Done
//! ```
//!
//! Most calls skip all waits for the client: the request is complete, and h2 takes the response. `decide` is ready with
//! its first poll if the store answers at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{Mutex, watch};
use tonic::{Code, Status};

use super::fairness::{Outbound, RESPONSE_OVERHEAD_BYTES, ReadScheduler};
use super::server::{Grpc, Limits};
use super::stats::GrpcStats;
use crate::net::{ConnectionMemory, HeldMemory};
use crate::rls::service::{
    Descriptors, HoldGuard, PREFIX_BYTES, RequestView, encode_framed, parse_grpc_timeout, rejection,
};
use crate::trace::{Ends, RequestTrace, SHOULD_RATE_LIMIT};
use weir_common::spans::TraceIds;
use weir_limiter::Request;
use weir_store::Store;

/// Requests up to this size are not counted as memory of clients while they wait for the store.
const FREE_REQUEST_BYTES: usize = 4 << 10;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// Found faster than its text.
static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const ENCODINGS: HeaderValue = HeaderValue::from_static("gzip,identity");

/// What the calls of one connection share.
#[derive(Debug)]
pub(super) struct CallContext<S> {
    pub grpc: Arc<Grpc<S>>,
    pub memory: Arc<ConnectionMemory>,
    pub outbound: Arc<Outbound>,
    pub timer: CallTimer,
    pub ends: Ends,
    /// Cloned by each call that tonic serves: the reference count is one more than those calls.
    pub tonic_calls: Arc<()>,
    /// Becomes true when the connection has sent GOAWAY: calls that never end by themselves are to end.
    pub leaving: OnceLock<watch::Sender<bool>>,
    pub scheduler: ReadScheduler,
    /// Held by the call whose message is being inflated.
    pub inflating: Mutex<()>,
}

impl<S: Store> CallContext<S> {
    /// Counts a message that cannot be understood.
    #[cold]
    pub fn unreadable(&self, status: Status) -> Status {
        self.grpc.rate_limit.count_unreadable(self.ends.client, &status.message());
        status
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Answered,
    /// The client reset the request before it was read.
    Reset,
}

pub(super) enum CallState {
    Done(CallOutcome),
    WaitForClient(ClientWait),
    Complete(CompleteRequest),
}

pub(super) struct CompleteRequest {
    pub message: Bytes,
    /// The timeout that the client sent, if any.
    pub timeout: Option<Duration>,
    pub trace: RequestTrace,
    pub reply: Reply,
    pub started: Started,
    /// Whether the store, or the first rules, have to be waited for.
    pub has_waited: bool,
    /// The memory that the message holds, if it is counted.
    pub reservation: Option<HeldMemory>,
}

/// Where the answer of a call goes.
pub(super) struct Reply {
    pub respond: SendResponse<Bytes>,
    pub outcome: CallOutcome,
    /// Whether the answer lists the encodings that requests may have, since this one named its own.
    pub lists_encodings: bool,
}

pub(super) enum ClientWait {
    Request(PartialRequest),
    Response(PendingResponse),
}

pub(super) struct PartialRequest {
    pub first: Bytes,
    pub body: RecvStream,
    /// The value of `grpc-encoding`.
    pub encoding: Option<HeaderValue>,
    pub timeout: Option<Duration>,
    pub trace: RequestTrace,
    pub respond: SendResponse<Bytes>,
}

/// A response that the flow-control window, or the socket, does not take yet.
pub(super) struct PendingResponse {
    pub stream: SendStream<Bytes>,
    pub message: Bytes,
    pub held: HoldGuard,
    pub reservation: HeldMemory,
    pub outcome: CallOutcome,
}

impl PendingResponse {
    /// Lets a response wait, or resets its stream if the memory for clients is used up.
    fn wait(mut self) -> CallState {
        if !self.reservation.resize(self.message.len() + RESPONSE_OVERHEAD_BYTES) {
            // gRPC clients map this to RESOURCE_EXHAUSTED.
            self.stream.send_reset(Reason::ENHANCE_YOUR_CALM);
            return CallState::Done(self.outcome);
        }
        CallState::WaitForClient(ClientWait::Response(self))
    }
}

pub(super) fn memory_exceeded() -> Status {
    let text = "buffered requests and responses use too much memory (setting clients.max_buffered): \
                send smaller requests, complete them, or read the responses";
    Status::resource_exhausted(text)
}

/// Starts a call: reads its request, unless the client has to be waited for.
pub(super) fn start<S>(
    shared: &CallContext<S>,
    request: http::Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> CallState {
    let (head, mut body) = request.into_parts();
    let timeout =
        head.headers.get(&GRPC_TIMEOUT).and_then(|text| parse_grpc_timeout(text.as_bytes()));
    let trace = shared.grpc.sampler.start_call(SHOULD_RATE_LIMIT, &head.headers, &shared.ends);
    let context = &mut Context::from_waker(Waker::noop());
    // The waker is not needed: a call that waits for the rest of the body polls again.
    let first = match body.poll_data(context) {
        Poll::Ready(Some(Ok(first))) => first,
        Poll::Ready(Some(Err(_))) => return CallState::Done(CallOutcome::Reset),
        Poll::Ready(None) | Poll::Pending => Bytes::new(),
    };
    let is_compressed = first.first().is_some_and(|flag| *flag != 0);
    if is_compressed || !body.is_end_stream() {
        let encoding = head.headers.get("grpc-encoding").cloned();
        let request = PartialRequest { first, body, encoding, timeout, trace, respond };
        return CallState::WaitForClient(ClientWait::Request(request));
    }
    let reply = Reply { respond, outcome: CallOutcome::Answered, lists_encodings: false };
    CallState::Complete(CompleteRequest {
        message: first,
        timeout,
        trace,
        reply,
        started: shared.timer.started(),
        has_waited: false,
        reservation: None,
    })
}

impl CompleteRequest {
    /// Decides and answers the request: with the first poll, unless the store or the first rules have to be waited for.
    pub fn decide<S: Store>(
        self,
        shared: Arc<CallContext<S>>,
    ) -> impl Future<Output = CallState> + Send {
        let mut call = self;
        // No async function, which would keep a second copy of the call.
        async move {
            let answer = call.answer(&shared).await;
            if call.has_waited {
                shared.timer.answer_later(call.started);
            } else {
                shared.timer.answer();
            }
            end_span(&shared, &mut call.trace, call.started, &answer);
            send(&shared, call.reply, answer)
        }
    }

    async fn answer<S: Store>(&mut self, shared: &CallContext<S>) -> FramedResponse {
        let rate_limit = &shared.grpc.rate_limit;
        let mut texts = Vec::new();
        let mut view = RequestView::default();
        let mut descriptors = Descriptors::new();
        let decoded = {
            let _entered = self.trace.enter();
            let decoded = unframed(shared, &self.message).and_then(|message| {
                let decoded = rate_limit.decode(message, &mut view, &mut texts, &mut descriptors);
                decoded.map_err(|error| shared.unreadable(Status::internal(error.to_string())))
            });
            match decoded {
                Ok(decoded) => decoded,
                Err(status) => return failed(status),
            }
        };
        let mut request = Request { span: self.trace.span(), ..decoded.request };
        let bytes = self.message.len() + decoded.heap_bytes;
        let mut answering = pin!(async {
            let mut holds = None;
            let decided = rate_limit.decide(&mut request, self.timeout, &mut holds, encode_framed);
            let answer = decided.await.map(Bytes::from).map_err(rejection);
            (answer, HoldGuard::new(rate_limit, holds))
        });
        let mut poll = |context: &mut Context<'_>| {
            let _entered = self.trace.enter();
            answering.as_mut().poll(context)
        };
        {
            // Not to be woken: what is pending is polled again.
            let context = &mut Context::from_waker(Waker::noop());
            if let Poll::Ready(answer) = poll(context) {
                return answer;
            }
            // The request is decided all the same: it may be a refund.
            if self.reply.respond.poll_reset(context).is_ready() {
                self.reply.outcome = CallOutcome::Reset;
            }
        }
        self.has_waited = true;
        if bytes > FREE_REQUEST_BYTES || self.reservation.is_some() {
            let reservation = || shared.memory.reservation();
            if !self.reservation.get_or_insert_with(reservation).resize(bytes) {
                return failed(memory_exceeded());
            }
        }
        poll_fn(poll).await
    }
}

/// A response with its prefix, and the concurrency holds of its request.
type FramedResponse = (Result<Bytes, Status>, HoldGuard);

fn failed(status: Status) -> FramedResponse {
    (Err(status), HoldGuard::default())
}

fn end_span<S>(
    shared: &CallContext<S>,
    trace: &mut RequestTrace,
    started: Started,
    (answer, _): &FramedResponse,
) {
    if let Some(ids) = trace.ids() {
        shared.timer.set_exemplar(ids, started);
    }
    match answer {
        Ok(_) => trace.end_call(Code::Ok, ""),
        Err(status) => trace.end_call(status.code(), status.message()),
    }
}

/// Sends a response, or lets it wait if the flow-control window or the socket has no room for it.
pub(super) fn send<S>(
    shared: &CallContext<S>,
    reply: Reply,
    (answer, held): FramedResponse,
) -> CallState {
    let Reply { mut respond, outcome, lists_encodings } = reply;
    // Sending fails only if the client has reset the request.
    match answer {
        Ok(message) => {
            let mut response = Response::new(());
            response.headers_mut().reserve(1);
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            if lists_encodings {
                response.headers_mut().insert(GRPC_ACCEPT_ENCODING, ENCODINGS);
            }
            let Ok(mut stream) = respond.send_response(response, false) else {
                return CallState::Done(CallOutcome::Reset);
            };
            stream.reserve_capacity(message.len());
            if stream.capacity() < message.len() || shared.outbound.is_full() {
                let reservation = shared.memory.reservation();
                return PendingResponse { stream, message, held, reservation, outcome }.wait();
            }
            shared.outbound.hand_over(message.len());
            if stream.send_data(message, false).is_ok()
                && stream.send_trailers(ok_trailers()).is_ok()
            {
                held.keep();
            }
        }
        Err(status) => {
            shared.outbound.hand_over(status.message().len());
            let mut response = status.into_http::<()>();
            if response.headers().is_empty() {
                response.headers_mut().insert(GRPC_STATUS, HeaderValue::from_static("2"));
            }
            if lists_encodings {
                response.headers_mut().insert(GRPC_ACCEPT_ENCODING, ENCODINGS);
            }
            if respond.send_response(response, true).is_err() {
                return CallState::Done(CallOutcome::Reset);
            }
            held.keep();
        }
    }
    CallState::Done(outcome)
}

pub(super) fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

/// Returns the length that a message's prefix announces, once the prefix has been received.
pub(super) fn announced_length(framed: &[u8], limits: &Limits) -> Result<Option<usize>, Status> {
    let announced =
        framed.first_chunk::<PREFIX_BYTES>().map(|[_, length @ ..]| u32::from_be_bytes(*length));
    let announced = announced.map(|length| length as usize);
    let length = announced.unwrap_or(0).max(framed.len().saturating_sub(PREFIX_BYTES));
    let max = limits.max_message;
    if length > max {
        let text = format!(
            "the request has {length} bytes, more than {max} (setting grpc.max_message): send \
             fewer descriptors per request"
        );
        return Err(Status::resource_exhausted(text));
    }
    Ok(announced)
}

/// Returns the message of a request, without its prefix.
fn unframed<'a, S: Store>(shared: &CallContext<S>, framed: &'a [u8]) -> Result<&'a [u8], Status> {
    let length = announced_length(framed, &shared.grpc.limits)?;
    let length = length
        .ok_or_else(|| shared.unreadable(Status::internal("the request message is missing")))?;
    let message = Some(&framed[PREFIX_BYTES..]).filter(|message| message.len() == length);
    message.ok_or_else(|| {
        let text = "expected exactly one message of the length that its prefix announces";
        shared.unreadable(Status::internal(text))
    })
}

/// Times the calls of `ShouldRateLimit` on one connection.
///
/// The clock is read twice for all calls that are started and answered in one poll of the connection:
/// they were read together, and their responses are written together. Its numbers are atomic only to
/// be shared; one thread uses them.
#[derive(Debug)]
pub(super) struct CallTimer {
    stats: Arc<GrpcStats>,
    opened: Instant,
    /// When the calls of this poll were started, in microseconds since `opened`.
    started: AtomicU64,
    /// Calls that were started and answered in this poll.
    answered: AtomicU64,
}

/// When a call was started, in microseconds since its connection was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started(u64);

impl CallTimer {
    pub fn new(stats: Arc<GrpcStats>) -> CallTimer {
        let (started, answered) = Default::default();
        CallTimer { stats, opened: Instant::now(), started, answered }
    }

    fn now(&self) -> u64 {
        self.opened.elapsed().as_micros() as u64
    }

    /// Starts a poll that may start calls.
    pub fn start_poll(&self) {
        self.started.store(self.now(), Ordering::Relaxed);
    }

    pub fn started(&self) -> Started {
        Started(self.started.load(Ordering::Relaxed))
    }

    /// Counts a call that was started in this poll and is answered.
    pub fn answer(&self) {
        self.answered.store(self.answered.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts a call that was started in an earlier poll and is answered.
    pub fn answer_later(&self, Started(started): Started) {
        self.stats.should_rate_limit.record(self.now().saturating_sub(started));
    }

    /// Makes a call that is answered, and counted, an exemplar of the latencies.
    #[cold]
    pub fn set_exemplar(&self, ids: TraceIds, Started(started): Started) {
        let elapsed = self.now().saturating_sub(started);
        self.stats.should_rate_limit.set_exemplar(elapsed, ids);
    }

    pub fn end_poll(&self) {
        let answered = self.answered.load(Ordering::Relaxed);
        if answered > 0 {
            self.answered.store(0, Ordering::Relaxed);
            let Started(started) = self.started();
            let elapsed = self.now().saturating_sub(started);
            self.stats.should_rate_limit.record_times(elapsed, answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_common::clock::SystemClock;
    use weir_redis::RedisStore;
    use weir_store::guard::Guard;
    use weir_store::local::Local;

    use super::*;

    type InRedis = Guard<Local<RedisStore>, Arc<SystemClock>>;

    fn returned_bytes<A, B, Returned>(_: fn(A, B) -> Returned) -> usize {
        size_of::<Returned>()
    }

    #[test]
    fn a_call_takes_at_most_two_kilobytes() {
        assert!(returned_bytes(CompleteRequest::decide::<InRedis>) <= 2 << 10);
    }
}
