//! Calls of `ShouldRateLimit`.
//!
//! A call goes through up to three states: it waits for the rest of its request, for the store, and
//! for its client to read the answer. Most go through none of them: the request is complete, the
//! store answers at once, and HTTP/2 takes the answer.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use tonic::Status;

use super::budget::Reservation;
use super::client_wait::{ClientWait, PartialRequest, PendingResponse};
use super::connection::Shared;
use super::hold_guard::HoldGuard;
use super::{Grpc, Limits};
use crate::limiter::Holds;
use crate::service::{RequestView, parse_timeout};
use crate::store::Store;

/// Before the message: whether it is compressed, and its length.
pub(super) const PREFIX_BYTES: usize = 5;

/// Bytes of a request waiting for the store that are not counted: those of small requests, which
/// are served whatever others hold.
const UNCOUNTED_BYTES: usize = 4 << 10;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Answered,
    /// Its client reset it before it was read.
    Reset,
}

/// What a call does next.
pub(super) enum CallState {
    Done(CallOutcome),
    /// Waits for its client.
    WaitForClient(ClientWait),
    /// Waits for the store.
    WaitForStore(CompleteRequest),
}

/// A request whose message is here.
pub(super) struct CompleteRequest {
    pub message: Bytes,
    /// How long the client waits for the answer, where it says so.
    pub timeout: Option<Duration>,
    pub respond: SendResponse<Bytes>,
    /// What it holds of the memory for clients, if anything.
    pub reservation: Option<Reservation>,
    pub outcome: CallOutcome,
}

/// Begins a call, and completes it where neither client nor store is waited for.
pub(super) fn start<S: Store + 'static>(
    shared: &Shared<S>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> CallState {
    let (head, mut body) = request.into_parts();
    let kind = head.headers.get(CONTENT_TYPE);
    if head.method != Method::POST || !kind.is_some_and(|kind| is_grpc(kind.as_bytes())) {
        let mut refused = Response::new(());
        *refused.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let _ = respond.send_response(refused, true);
        return CallState::Done(CallOutcome::Answered);
    }
    let timeout = head.headers.get("grpc-timeout").and_then(|it| parse_timeout(it.as_bytes()));
    let context = &mut Context::from_waker(Waker::noop());
    // A call that waits for more of the body polls again.
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
            respond,
        }));
    }
    let (reservation, outcome) = (None, CallOutcome::Answered);
    let mut next = complete(
        shared,
        CompleteRequest { message: first, timeout, respond, reservation, outcome },
    );
    if let CallState::WaitForStore(request) = &mut next
        && request.respond.poll_reset(context).is_ready()
    {
        // The request is decided all the same: it may give back hits.
        request.outcome = CallOutcome::Reset;
    }
    next
}

/// Whether a content type is gRPC's, and not that of gRPC-Web or whatever else begins like it.
fn is_grpc(kind: &[u8]) -> bool {
    matches!(kind.strip_prefix(b"application/grpc"), Some([] | [b'+' | b';', ..]))
}

/// Answers a request now if the store can; else it is to wait for the store.
pub(super) fn complete<S: Store + 'static>(
    shared: &Shared<S>,
    request: CompleteRequest,
) -> CallState {
    if !shared.grpc.rate_limit.is_immediate() {
        return CallState::WaitForStore(request);
    }
    match answer_now(&shared.grpc, &request.message, request.timeout) {
        Some(answer) => send(shared, request.respond, answer, request.outcome),
        None => CallState::WaitForStore(request),
    }
}

impl CompleteRequest {
    /// Answers a request when the store does.
    pub async fn wait_for_store<S: Store + 'static>(mut self, shared: Arc<Shared<S>>) -> CallState {
        let timeout = self.timeout;
        let answer = match self.read(&shared) {
            Ok(sent) => answer(&shared.grpc, &sent, timeout).await,
            Err(status) => (Err(status), HoldGuard::default()),
        };
        send(&shared, self.respond, answer, self.outcome)
    }

    /// Reads the message, and counts what it takes while the store is waited for.
    fn read<S: Store>(&mut self, shared: &Shared<S>) -> Result<RequestView<'_>, Status> {
        let sent = read(&shared.grpc, &self.message)?;
        let bytes = self.message.len() + sent.heap_bytes();
        if bytes > UNCOUNTED_BYTES || self.reservation.is_some() {
            let reservation = self.reservation.get_or_insert_with(|| shared.budget.reservation());
            if !reservation.resize(bytes) {
                return Err(too_much_held());
            }
        }
        Ok(sent)
    }
}

pub(super) fn too_much_held() -> Status {
    let text = "clients hold too much memory (setting grpc.max_buffered): send smaller requests, \
                faster, or read the responses";
    Status::resource_exhausted(text)
}

/// Returns the length that a message with its prefix announces, once that is here.
///
/// # Errors
///
/// The status for a message that is too large.
pub(super) fn announced(bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Status> {
    let announced =
        bytes.first_chunk::<PREFIX_BYTES>().map(|[_, length @ ..]| u32::from_be_bytes(*length));
    let announced = announced.map(|length| length as usize);
    let length = announced.unwrap_or(0).max(bytes.len().saturating_sub(PREFIX_BYTES));
    let max = limits.max_message;
    if length > max {
        let text =
            format!("a request of {length} bytes, {max} are allowed (setting grpc.max_message)");
        return Err(Status::resource_exhausted(text));
    }
    Ok(announced)
}

/// Reads a message with its prefix.
fn read<'a, S: Store>(grpc: &Grpc<S>, framed: &'a [u8]) -> Result<RequestView<'a>, Status> {
    let length = announced(framed, &grpc.limits)?;
    let length = length.ok_or_else(|| Status::internal("the request is missing"))?;
    if framed[0] != 0 {
        return Err(Status::unimplemented("the request is compressed: send it as it is"));
    }
    let message = Some(&framed[PREFIX_BYTES..]).filter(|message| message.len() == length);
    let message =
        message.ok_or_else(|| Status::internal("one message is sent, of the length it says"))?;
    grpc.rate_limit.decode(message).map_err(|error| Status::internal(error.to_string()))
}

/// An answer with its prefix, and what its request took of concurrency limits.
pub(super) type Answer = (Result<Bytes, Status>, HoldGuard);

/// Answers a request without waiting; none if the store cannot answer now.
fn answer_now<S: Store + 'static>(
    grpc: &Grpc<S>,
    message: &[u8],
    timeout: Option<Duration>,
) -> Option<Answer> {
    let sent = match read(grpc, message) {
        Ok(sent) => sent,
        Err(status) => return Some((Err(status), HoldGuard::default())),
    };
    let mut holds = Holds::default();
    let answer = grpc.rate_limit.answer_framed_now(&sent, timeout, &mut holds)?;
    let answer = answer.map(Bytes::from).map_err(Status::from);
    Some((answer, HoldGuard::new(&grpc.rate_limit, holds)))
}

async fn answer<S: Store + 'static>(
    grpc: &Grpc<S>,
    sent: &RequestView<'_>,
    timeout: Option<Duration>,
) -> Answer {
    let mut holds = Holds::default();
    let answer = grpc.rate_limit.answer_framed(sent, timeout, &mut holds).await;
    (answer.map(Bytes::from).map_err(Status::from), HoldGuard::new(&grpc.rate_limit, holds))
}

/// Sends an answer. One that its client does not let be sent now waits.
pub(super) fn send<S>(
    shared: &Shared<S>,
    mut respond: SendResponse<Bytes>,
    (answer, held): Answer,
    outcome: CallOutcome,
) -> CallState {
    // Errors of sending say that the client has reset the request.
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
            if stream.send_data(message, false).is_ok() && stream.send_trailers(good()).is_ok() {
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

/// The trailers of an answer.
pub(super) fn good() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}
