//! One call of `ShouldRateLimit`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use tonic::Status;

use super::Grpc;
use super::route::send_data;
use crate::service::timeout;
use crate::store::Store;

/// Before the message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Bytes of an answer that are sent without asking whether its client takes them.
const SMALL: usize = 4 << 10;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered,
    /// Its client reset it before it was read.
    Reset,
}

/// A request that has begun.
pub(super) enum Begun<F> {
    Done(Outcome),
    /// The future does the rest.
    Pending(F),
}

/// Answers a call, at once where its message is here and the store answers at once.
pub(super) fn begin<S: Store + 'static>(
    grpc: &Arc<Grpc<S>>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Begun<impl Future<Output = Outcome> + Send + use<S>> {
    let (head, mut body) = request.into_parts();
    let kind = head.headers.get(CONTENT_TYPE);
    if head.method != Method::POST || !kind.is_some_and(|kind| is_grpc(kind.as_bytes())) {
        let mut refused = Response::new(());
        *refused.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let _ = respond.send_response(refused, true);
        return Begun::Done(Outcome::Answered);
    }
    let patience = head.headers.get("grpc-timeout").and_then(|it| timeout(it.as_bytes()));
    // Who waits for more of the body polls again.
    let first = match body.poll_data(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(first))) => first,
        Poll::Ready(Some(Err(_))) => return Begun::Done(Outcome::Reset),
        Poll::Ready(None) | Poll::Pending => Bytes::new(),
    };
    let rest = if body.is_end_stream() { None } else { Some(body) };
    let (outcome, left) = if rest.is_none() && grpc.rate_limit.answers_at_once() {
        let answer = pin!(answer(grpc, first, patience));
        let Poll::Ready(answer) = answer.poll(&mut Context::from_waker(Waker::noop())) else {
            return Begun::Done(Outcome::Answered);
        };
        match send(respond, answer) {
            Ok(unsent) => (Outcome::Answered, Left::Deliver(unsent)),
            Err(outcome) => return Begun::Done(outcome),
        }
    } else {
        // It is decided all the same: its hits may have to be given back.
        let reset = respond.poll_reset(&mut Context::from_waker(Waker::noop())).is_ready();
        let outcome = if reset { Outcome::Reset } else { Outcome::Answered };
        (outcome, Left::Answer { first, rest, respond })
    };
    let grpc = grpc.clone();
    Begun::Pending(async move {
        let unsent = match left {
            Left::Deliver(unsent) => Some(unsent),
            Left::Answer { first, rest, respond } => {
                let message = match rest {
                    None => Ok(first),
                    // Seldom: it need not lie within every call.
                    Some(body) => match Box::pin(arrive(&grpc, first, body)).await {
                        Some(message) => message,
                        None => return Outcome::Reset,
                    },
                };
                let answer = match message {
                    Ok(message) => answer(&grpc, message, patience).await,
                    Err(status) => Err(status),
                };
                send(respond, answer).ok()
            }
        };
        if let Some(unsent) = unsent {
            Box::pin(unsent.deliver(&grpc)).await;
        }
        outcome
    })
}

/// What is left to do for a call.
enum Left {
    Answer { first: Bytes, rest: Option<RecvStream>, respond: SendResponse<Bytes> },
    Deliver(Unsent),
}

/// Whether a content type is gRPC's, and not that of gRPC-Web or whatever else begins like it.
fn is_grpc(kind: &[u8]) -> bool {
    matches!(kind.strip_prefix(b"application/grpc"), Some([] | [b'+' | b';', ..]))
}

/// Waits for the rest of a body, as long as a client may take. None where it breaks off.
async fn arrive<S>(
    grpc: &Grpc<S>,
    first: Bytes,
    mut body: RecvStream,
) -> Option<Result<Bytes, Status>> {
    let read = read(grpc, first, &mut body);
    match tokio::time::timeout(grpc.limits.timeout, read).await {
        Ok(read) => read,
        Err(_) => Some(Err(Status::deadline_exceeded("the request did not arrive in time"))),
    }
}

/// Reads what is left of a body. None where it breaks off.
async fn read<S>(
    grpc: &Grpc<S>,
    first: Bytes,
    body: &mut RecvStream,
) -> Option<Result<Bytes, Status>> {
    let mut whole = BytesMut::from(first);
    let mut taken = whole.len();
    let mut share = grpc.slow.share();
    loop {
        if !share.grow_to(whole.len()) {
            let told = "too many bytes of requests wait for the rest: send smaller ones, or faster";
            return Some(Err(Status::resource_exhausted(told)));
        }
        if whole.len() > grpc.limits.max_message + PREFIX {
            return Some(Err(too_large(whole.len(), grpc.limits.max_message)));
        }
        if let Some(length) = announced(&whole)
            && length > grpc.limits.max_message
        {
            return Some(Err(too_large(length, grpc.limits.max_message)));
        }
        // Makes room for more.
        let _ = body.flow_control().release_capacity(std::mem::take(&mut taken));
        match poll_fn(|cx| body.poll_data(cx)).await {
            Some(Ok(more)) => {
                taken = more.len();
                whole.extend_from_slice(&more);
            }
            Some(Err(_)) => return None,
            None => return Some(Ok(whole.freeze())),
        }
    }
}

fn announced(bytes: &[u8]) -> Option<usize> {
    let (_, length) = bytes.first_chunk::<PREFIX>()?.split_first()?;
    Some(u32::from_be_bytes(length.try_into().ok()?) as usize)
}

fn too_large(length: usize, most: usize) -> Status {
    let told =
        format!("a request of {length} bytes, {most} are allowed (setting grpc.max_message)");
    Status::resource_exhausted(told)
}

/// The answer to a message with its prefix, with a prefix of its own.
async fn answer<S: Store>(
    grpc: &Grpc<S>,
    mut framed: Bytes,
    patience: Option<Duration>,
) -> Result<Bytes, Status> {
    let length = announced(&framed).ok_or_else(|| Status::internal("the request is missing"))?;
    if length > grpc.limits.max_message {
        return Err(too_large(length, grpc.limits.max_message));
    }
    if framed[0] != 0 {
        return Err(Status::unimplemented("the request is compressed: send it as it is"));
    }
    framed.advance(PREFIX);
    let message = framed.get(..length).filter(|message| message.len() == framed.len());
    let message =
        message.ok_or_else(|| Status::internal("one message is sent, of the length it says"))?;
    let sent =
        grpc.rate_limit.read(message).map_err(|error| Status::internal(error.to_string()))?;
    Ok(grpc.rate_limit.answer_framed(&sent, patience).await?.into())
}

/// Sends an answer, unless it is too large to be sent before its client makes room for it.
fn send(
    mut respond: SendResponse<Bytes>,
    answer: Result<Bytes, Status>,
) -> Result<Unsent, Outcome> {
    // Errors of sending say that the client is gone.
    match answer {
        Ok(message) => {
            let mut response = Response::new(());
            response.headers_mut().reserve(1);
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            let sent = respond.send_response(response, false);
            let mut stream = sent.map_err(|_| Outcome::Reset)?;
            if message.len() > SMALL {
                return Ok(Unsent { stream, message });
            }
            if stream.send_data(message, false).is_ok() {
                let _ = stream.send_trailers(good());
            }
        }
        Err(status) => {
            let mut response = status.into_http::<()>();
            if response.headers().is_empty() {
                response.headers_mut().insert(GRPC_STATUS, HeaderValue::from_static("2"));
            }
            respond.send_response(response, true).map_err(|_| Outcome::Reset)?;
        }
    }
    Err(Outcome::Answered)
}

/// The trailers of an answer.
fn good() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

/// A message whose client must make room for it.
struct Unsent {
    stream: SendStream<Bytes>,
    message: Bytes,
}

impl Unsent {
    /// Sends it, if its client takes it in time.
    async fn deliver<S>(mut self, grpc: &Grpc<S>) {
        let mut share = grpc.slow.share();
        let taken = share.grow_to(self.message.len()) && {
            let sent = send_data(self.message, &mut self.stream);
            matches!(tokio::time::timeout(grpc.limits.timeout, sent).await, Ok(Ok(())))
        };
        if taken {
            let _ = self.stream.send_trailers(good());
        } else {
            self.stream.send_reset(Reason::CANCEL);
        }
    }
}
