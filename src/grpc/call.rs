//! Calls of `ShouldRateLimit`.
//!
//! ```text
//!            request is incomplete         store answers later        client does not read
//! start ──────▶ WaitForClient ──▶ complete ──▶ WaitForStore ──▶ send ──▶ WaitForClient ──▶ Done
//! ```
//!
//! Most calls skip all waits: the request is complete, the store answers immediately, and h2 takes
//! the response.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use tonic::{Code, Status};

use super::Grpc;
use super::call_context::CallContext;
use super::call_state::{
    CallOutcome, CallState, ClientWait, CompleteRequest, PartialRequest, PendingResponse,
    memory_exceeded,
};
use super::framing::read;
use super::stats::Started;
use crate::service::{
    Descriptors, HoldGuard, RequestView, encode_framed, parse_timeout, rejection,
};
use crate::trace::RequestTrace;
use crate::trace::SHOULD_RATE_LIMIT;
use weir_limiter::Holds;
use weir_store::Store;

/// Requests up to this size are free while they wait for the store, whatever other clients hold.
const FREE_REQUEST_BYTES: usize = 4 << 10;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Starts a call, and completes it if neither the client nor the store has to be waited for.
pub(super) fn start<S: Store>(
    shared: &CallContext<S>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> CallState {
    let (head, mut body) = request.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE);
    if head.method != Method::POST || !content_type.is_some_and(|it| is_grpc(it.as_bytes())) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let _ = respond.send_response(response, true);
        return CallState::Done(CallOutcome::Answered);
    }
    let timeout = head.headers.get("grpc-timeout").and_then(|it| parse_timeout(it.as_bytes()));
    let trace = shared.grpc.sampler.start_call(SHOULD_RATE_LIMIT, &head.headers, &shared.ends);
    let context = &mut Context::from_waker(Waker::noop());
    // The waker is not needed: a call that waits for the rest of the body polls again.
    let first = match body.poll_data(context) {
        Poll::Ready(Some(Ok(first))) => first,
        Poll::Ready(Some(Err(_))) => return CallState::Done(CallOutcome::Reset),
        Poll::Ready(None) | Poll::Pending => Bytes::new(),
    };
    if !body.is_end_stream() {
        return CallState::WaitForClient(ClientWait::Request(PartialRequest {
            first,
            body,
            timeout,
            trace,
            respond,
        }));
    }
    let (reservation, outcome, started) = (None, CallOutcome::Answered, shared.timer.started());
    let mut next = complete(
        shared,
        CompleteRequest { message: first, timeout, trace, respond, started, reservation, outcome },
    );
    if let CallState::WaitForStore(request) = &mut next
        && request.respond.poll_reset(context).is_ready()
    {
        // The request is decided all the same: it may be a refund.
        request.outcome = CallOutcome::Reset;
    }
    next
}

/// Whether a content type is that of gRPC, and not that of gRPC-Web.
fn is_grpc(content_type: &[u8]) -> bool {
    matches!(content_type.strip_prefix(b"application/grpc"), Some([] | [b'+' | b';', ..]))
}

/// Answers a request if the store can answer now; else the call waits for the store.
pub(super) fn complete<S: Store>(
    shared: &CallContext<S>,
    mut request: CompleteRequest,
) -> CallState {
    if !shared.grpc.rate_limit.is_immediate() {
        return CallState::WaitForStore(request);
    }
    match answer_now(&shared.grpc, &request) {
        Some(answer) => {
            shared.timer.answer();
            end_span(shared, &mut request.trace, request.started, &answer);
            send(shared, request.respond, answer, request.outcome)
        }
        None => CallState::WaitForStore(request),
    }
}

impl CompleteRequest {
    /// Answers the request when the store has answered.
    pub async fn wait_for_store<S: Store>(mut self, shared: Arc<CallContext<S>>) -> CallState {
        let timeout = self.timeout;
        let mut trace = std::mem::take(&mut self.trace);
        let answer = match self.read(&shared, &trace) {
            Ok(mut view) => {
                view.set_span(trace.span());
                let mut answering = pin!(answer(&shared.grpc, &view, timeout));
                poll_fn(|context| {
                    let _entered = trace.enter();
                    answering.as_mut().poll(context)
                })
                .await
            }
            Err(status) => (Err(status), HoldGuard::default()),
        };
        shared.timer.answer_later(self.started);
        end_span(&shared, &mut trace, self.started, &answer);
        send(&shared, self.respond, answer, self.outcome)
    }

    /// Decodes the message, and counts the memory that it holds until the store answers.
    fn read<S: Store>(
        &mut self,
        shared: &CallContext<S>,
        trace: &RequestTrace,
    ) -> Result<RequestView<'_>, Status> {
        let _entered = trace.enter();
        let view = read(&shared.grpc, &self.message)?;
        let bytes = self.message.len() + view.heap_bytes();
        if bytes > FREE_REQUEST_BYTES || self.reservation.is_some() {
            let reservation = self.reservation.get_or_insert_with(|| shared.budget.reservation());
            if !reservation.resize(bytes) {
                return Err(memory_exceeded());
            }
        }
        Ok(view)
    }
}

/// A response with its prefix, and the concurrency holds of its request.
pub(super) type FramedResponse = (Result<Bytes, Status>, HoldGuard);

/// Answers a request without waiting; none if the store cannot answer now.
fn answer_now<S: Store>(grpc: &Grpc<S>, request: &CompleteRequest) -> Option<FramedResponse> {
    let _entered = request.trace.enter();
    let mut view = match read(grpc, &request.message) {
        Ok(view) => view,
        Err(status) => return Some((Err(status), HoldGuard::default())),
    };
    view.set_span(request.trace.span());
    let mut holds = Holds::default();
    let mut descriptors = Descriptors::new();
    let asked = view.request(&mut descriptors);
    let answer = grpc.rate_limit.decide_now(asked, request.timeout, &mut holds, encode_framed)?;
    let answer = answer.map(Bytes::from).map_err(rejection);
    Some((answer, HoldGuard::new(&grpc.rate_limit, holds)))
}

async fn answer<S: Store>(
    grpc: &Grpc<S>,
    view: &RequestView<'_>,
    timeout: Option<Duration>,
) -> FramedResponse {
    let mut holds = Holds::default();
    let mut descriptors = Descriptors::new();
    let request = view.request(&mut descriptors);
    let answer = grpc.rate_limit.decide(request, timeout, &mut holds, encode_framed).await;
    (answer.map(Bytes::from).map_err(rejection), HoldGuard::new(&grpc.rate_limit, holds))
}

/// Ends the span of a call that is answered.
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
    mut respond: SendResponse<Bytes>,
    (answer, held): FramedResponse,
    outcome: CallOutcome,
) -> CallState {
    // Sending fails only if the client has reset the request.
    match answer {
        Ok(message) => {
            let mut response = Response::new(());
            response.headers_mut().reserve(1);
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            let Ok(mut stream) = respond.send_response(response, false) else {
                return CallState::Done(CallOutcome::Reset);
            };
            stream.reserve_capacity(message.len());
            if stream.capacity() < message.len() || shared.outbound.is_full() {
                return PendingResponse::wait(shared, stream, message, held, outcome);
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
            if respond.send_response(response, true).is_err() {
                return CallState::Done(CallOutcome::Reset);
            }
            held.keep();
        }
    }
    CallState::Done(outcome)
}

/// The trailers of a successful response.
pub(super) fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}
