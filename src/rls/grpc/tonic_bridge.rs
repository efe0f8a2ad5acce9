//! Serves calls of all methods but `ShouldRateLimit` (budget, quotas, health, reflection): forwards them from h2 to tonic.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body, Frame};
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower_service::Service;

use super::call::{CallContext, memory_exceeded};
use super::client_wait::send_data;
use super::server::Grpc;
use super::stats::{OtherMethod, STREAM_QUOTAS};
use crate::net::HeldMemory;
use crate::rls::service::{HoldGuard, QuotaCall};
use crate::trace::RequestTrace;
use weir_store::Store;

/// Concurrent calls per connection. A client can make some of them last as long as it likes.
const MAX_CALLS: usize = 100;

/// Bytes that a call counts as memory of its client: its headers, its message and a part of the response.
const CALL_BYTES: usize = 64 << 10;

/// Bytes that a call of the reflection service takes in addition while the service does not read. Its client may then
/// send what the flow-control window allows, and a frame of 256 bytes keeps the 8 KiB alive that were read with it.
const UNREAD_BYTES: usize = 2 << 20;

/// Bytes that a call of the budget service takes: its headers, its message and its response are small. By default one
/// connection has room for some 250.
const BUDGET_BYTES: usize = 32 << 10;

/// Spawns a task that has a call answered by tonic's services, or refuses the call.
pub(super) fn start<S: Store>(
    shared: &CallContext<S>,
    mut request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let path = request.uri().path();
    let is_budget = path.starts_with("/weir.budget.");
    let is_quotas = path == STREAM_QUOTAS;
    // Other calls may wait behind the few of health and reflection.
    let is_counted = !is_budget && !is_quotas;
    let bytes = if is_budget { BUDGET_BYTES } else { CALL_BYTES };
    let mut reservation = shared.memory.reservation();
    let refused = if is_counted && Arc::strong_count(&shared.tonic_calls) > MAX_CALLS {
        let text = format!(
            "more than {MAX_CALLS} concurrent calls of health and reflection on one connection"
        );
        Some(Status::resource_exhausted(text))
    } else if !reservation.resize(bytes) {
        Some(memory_exceeded())
    } else {
        None
    };
    if let Some(status) = refused {
        let _ = respond.send_response(status.into_http::<()>(), true);
        return;
    }
    let held = (reservation, is_counted.then(|| shared.tonic_calls.clone()));
    let (routes, timeout) = (shared.grpc.routes.clone(), shared.grpc.limits.timeout);
    let unread = match path {
        _ if is_quotas => {
            Unread::Counted { held: shared.memory.reservation(), bytes: Arc::default() }
        }
        path if path.starts_with("/grpc.reflection.") => Unread::Any(shared.memory.reservation()),
        _ => Unread::Nothing,
    };
    let method = OtherMethod::of(path);
    let trace = match method.full_name().filter(|_| is_budget) {
        Some(name) => shared.grpc.sampler.start_call(name, request.headers(), &shared.ends),
        None => RequestTrace::default(),
    };
    if let Some(span) = trace.span() {
        request.extensions_mut().insert(span.clone());
    }
    if let Unread::Counted { bytes, .. } = &unread {
        request.extensions_mut().insert(QuotaCall {
            client: shared.ends.client,
            memory: shared.memory.clone(),
            leaving: shared.leaving.get_or_init(|| watch::Sender::new(false)).subscribe(),
            unread: bytes.clone(),
        });
    }
    let call = BridgedCall {
        respond,
        trace,
        method,
        grpc: shared.grpc.clone(),
        client: shared.ends.client,
        started: Instant::now(),
        // The others may wait for something to report.
        max_wait: if is_budget { timeout } else { Duration::MAX },
    };
    tokio::spawn(async move {
        call.forward(routes, request, unread).await;
        drop(held);
    });
}

/// A call that tonic's services answer.
struct BridgedCall<S> {
    respond: SendResponse<Bytes>,
    trace: RequestTrace,
    method: OtherMethod,
    grpc: Arc<Grpc<S>>,
    client: Option<SocketAddr>,
    started: Instant,
    /// The timeout of receiving the request and of the response to it.
    max_wait: Duration,
}

impl<S: Store> BridgedCall<S> {
    /// Forwards the call, until its client resets it. `unread` is for the memory of what the service does not read.
    async fn forward(mut self, mut routes: Routes, request: Request<RecvStream>, unread: Unread) {
        let refused = Arc::<AtomicBool>::default();
        let body = |stream| RequestBody { stream, unread, refused: refused.clone() };
        let mut routed = pin!(routes.call(request.map(body)));
        let response = poll_fn(|cx| match self.respond.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => routed.as_mut().poll(cx).map(Some),
        });
        let Ok(response) = tokio::time::timeout(self.max_wait, response).await else {
            let text = "the request was not received within clients.timeout";
            let late = Status::deadline_exceeded(text);
            self.trace.end_call(late.code(), late.message());
            let _ = self.respond.send_response(late.into_http::<()>(), true);
            return;
        };
        let Some(Ok(response)) = response else { return };
        self.grpc.stats.count_other(self.method, self.started.elapsed());
        // Without one it is in the trailers, and OK.
        let status = Status::from_header_map(response.headers());
        let (code, message) =
            status.as_ref().map_or((Code::Ok, ""), |status| (status.code(), status.message()));
        self.trace.end_call(code, message);
        // Only tonic answers a method with these, to a message that it cannot read.
        let is_unreadable = matches!(code, Code::Internal | Code::Unimplemented);
        if is_unreadable && self.method.full_name().is_some() {
            self.grpc.rate_limit.count_unreadable(self.client, &message);
        }
        let (mut head, body) = response.into_parts();
        let held = head.extensions.remove::<HoldGuard>();
        let ends = body.is_end_stream();
        let sent = self.respond.send_response(Response::from_parts(head, ()), ends);
        let Ok(stream) = sent else { return };
        // It fails only if the client is gone.
        let timeout = self.grpc.limits.timeout;
        let is_sent = ends || send(body, stream, timeout, &refused).await.unwrap_or(false);
        if let (true, Some(held)) = (is_sent, held) {
            held.keep();
        }
    }
}

/// Sends a body, unless the rest of the request was refused. Returns whether it was sent whole.
async fn send(
    body: impl Body<Data = Bytes>,
    mut stream: SendStream<Bytes>,
    timeout: Duration,
    refused: &AtomicBool,
) -> Result<bool, h2::Error> {
    let mut body = pin!(body);
    loop {
        let frame = poll_fn(|cx| match stream.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => body.as_mut().poll_frame(cx).map(Some),
        });
        match frame.await {
            None | Some(Some(Err(_))) => return Ok(false),
            Some(None) => return stream.send_data(Bytes::new(), true).map(|()| true),
            Some(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    let sent = send_data(data, &mut stream, None);
                    let Ok(sent) = tokio::time::timeout(timeout, sent).await else {
                        stream.send_reset(Reason::CANCEL);
                        return Ok(false);
                    };
                    sent?;
                }
                Err(_) if refused.load(Ordering::Relaxed) => {
                    // gRPC clients map this to RESOURCE_EXHAUSTED.
                    stream.send_reset(Reason::ENHANCE_YOUR_CALM);
                    return Ok(false);
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return stream.send_trailers(trailers).map(|()| true);
                }
            },
        }
    }
}

/// The memory for what arrives of a call while its service does not read.
enum Unread {
    /// It reads all at once.
    Nothing,
    /// From its reading of a message to its waiting for the next, as much as the flow-control window allows.
    Any(HeldMemory),
    /// The bytes since the last message that it has read, which it sets to 0.
    Counted { held: HeldMemory, bytes: Arc<AtomicUsize> },
}

/// A request's body as tonic reads it.
struct RequestBody {
    stream: RecvStream,
    unread: Unread,
    /// Set if there was none.
    refused: Arc<AtomicBool>,
}

impl RequestBody {
    /// Holds or releases the memory for what is not read, by the result of reading.
    fn hold(&mut self, polled: &Poll<Option<Result<Bytes, h2::Error>>>) -> Result<(), Status> {
        let is_held = match (&mut self.unread, polled) {
            (Unread::Nothing, _) => return Ok(()),
            (Unread::Any(held), Poll::Ready(Some(Ok(_)))) => held.resize(UNREAD_BYTES),
            (Unread::Any(held), _) => held.resize(0),
            (Unread::Counted { held, bytes }, Poll::Ready(Some(Ok(data)))) => {
                held.resize(bytes.fetch_add(data.len(), Ordering::Relaxed) + data.len())
            }
            (Unread::Counted { held, bytes }, _) => held.resize(bytes.load(Ordering::Relaxed)),
        };
        self.refused.store(!is_held, Ordering::Relaxed);
        if is_held { Ok(()) } else { Err(memory_exceeded()) }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = self.stream.poll_data(cx);
        if let Err(status) = self.hold(&polled) {
            return Poll::Ready(Some(Err(status.into())));
        }
        let stream = &mut self.stream;
        Poll::Ready(match ready!(polled) {
            Some(Ok(data)) => {
                // Opens the flow-control window again.
                let _ = stream.flow_control().release_capacity(data.len());
                Some(Ok(Frame::data(data)))
            }
            Some(Err(error)) => Some(Err(error.into())),
            None => match ready!(stream.poll_trailers(cx)) {
                Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
                Err(error) => Some(Err(error.into())),
            },
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}
