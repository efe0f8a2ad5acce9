//! Calls of all other methods: forwards them from h2's streams to tonic's services.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body, Frame};
use tonic::Status;
use tonic::service::Routes;
use tower_service::Service;

use super::call_context::CallContext;
use super::call_state::memory_exceeded;
use super::stats::OtherMethod;

/// Concurrent calls per connection. A client can make some of them last as long as it likes.
const MAX_CALLS: usize = 100;

/// Bytes that a call takes: its headers, its message and a part of the response.
const CALL_BYTES: usize = 64 << 10;

/// Bytes that a call of the reflection service takes. Its client may send without reading, and a
/// frame of 256 bytes keeps the 8 KiB alive that were read with it.
const REFLECTION_BYTES: usize = 2 << 20;

/// Spawns a task that has a call answered by tonic's services, or refuses the call.
pub(super) fn start<S>(
    shared: &CallContext<S>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let is_reflection = request.uri().path().starts_with("/grpc.reflection.");
    let bytes = if is_reflection { REFLECTION_BYTES } else { CALL_BYTES };
    let mut reservation = shared.budget.reservation();
    let refused = if Arc::strong_count(&shared.tonic_calls) > MAX_CALLS {
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
    let held = (reservation, shared.tonic_calls.clone());
    let (routes, timeout) = (shared.grpc.routes.clone(), shared.grpc.limits.timeout);
    let (stats, started) = (shared.grpc.stats.clone(), Instant::now());
    let method = OtherMethod::of(request.uri().path());
    tokio::spawn(async move {
        let answered = || stats.count_other(method, started.elapsed());
        forward(routes, request, respond, timeout, answered).await;
        drop(held);
    });
}

/// Forwards one call, until its client resets it. `timeout` is the time that the client has to read
/// each part of the response; `answered` is called when there is one.
async fn forward(
    mut routes: Routes,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    timeout: Duration,
    answered: impl FnOnce(),
) {
    let mut routed = pin!(routes.call(request.map(RequestBody)));
    let response = poll_fn(|cx| match respond.poll_reset(cx) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => routed.as_mut().poll(cx).map(Some),
    });
    let Some(Ok(response)) = response.await else { return };
    answered();
    let (head, body) = response.into_parts();
    let ends = body.is_end_stream();
    let Ok(stream) = respond.send_response(Response::from_parts(head, ()), ends) else { return };
    if !ends {
        // It fails only if the client is gone.
        let _ = send(body, stream, timeout).await;
    }
}

async fn send(
    body: impl Body<Data = Bytes>,
    mut stream: SendStream<Bytes>,
    timeout: Duration,
) -> Result<(), h2::Error> {
    let mut body = pin!(body);
    loop {
        let frame = poll_fn(|cx| match stream.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => body.as_mut().poll_frame(cx).map(Some),
        });
        match frame.await {
            None | Some(Some(Err(_))) => return Ok(()),
            Some(None) => return stream.send_data(Bytes::new(), true),
            Some(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    let sent = send_data(data, &mut stream);
                    let Ok(sent) = tokio::time::timeout(timeout, sent).await else {
                        stream.send_reset(Reason::CANCEL);
                        return Ok(());
                    };
                    sent?;
                }
                Err(frame) => {
                    return stream.send_trailers(frame.into_trailers().unwrap_or_default());
                }
            },
        }
    }
}

/// Sends data as the flow-control window allows.
async fn send_data(mut data: Bytes, stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(room) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return Ok(()) };
        stream.send_data(data.split_to(room?.min(data.len())), false)?;
    }
    Ok(())
}

/// A request's body as tonic reads it.
struct RequestBody(RecvStream);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let stream = &mut self.0;
        Poll::Ready(match ready!(stream.poll_data(cx)) {
            Some(Ok(data)) => {
                // Opens the flow-control window again.
                let _ = stream.flow_control().release_capacity(data.len());
                Some(Ok(Frame::data(data)))
            }
            Some(Err(error)) => Some(Err(error)),
            None => ready!(stream.poll_trailers(cx)).map(|it| it.map(Frame::trailers)).transpose(),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
