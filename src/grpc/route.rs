//! Calls of other methods: between the h2 crate's streams and tonic's services.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body, Frame};
use tonic::Status;
use tonic::service::Routes;
use tower_service::Service;

/// Calls of one connection that may be here at a time: some last as long as their client likes.
const CALLS: usize = 100;

/// Has a call answered by tonic's services. Ends where the client resets it. `calls` has one owner
/// for each call of the connection, and the connection.
pub(super) async fn forward(
    mut routes: Routes,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    calls: Arc<()>,
) {
    if Arc::strong_count(&calls) - 1 > CALLS {
        let told = format!("more than {CALLS} calls of other methods on one connection");
        let refused = Status::resource_exhausted(told).into_http::<()>();
        let _ = respond.send_response(refused, true);
        return;
    }
    let mut answered = pin!(routes.call(request.map(Received)));
    let response = poll_fn(|cx| match respond.poll_reset(cx) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => answered.as_mut().poll(cx).map(Some),
    });
    let Some(Ok(response)) = response.await else { return };
    let (head, body) = response.into_parts();
    let ends = body.is_end_stream();
    let Ok(stream) = respond.send_response(Response::from_parts(head, ()), ends) else { return };
    if !ends {
        // Errors of sending say that the client is gone.
        let _ = send(body, stream).await;
    }
}

async fn send(
    body: impl Body<Data = Bytes>,
    mut stream: SendStream<Bytes>,
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
                Ok(data) => send_data(data, &mut stream).await?,
                Err(frame) => {
                    return stream.send_trailers(frame.into_trailers().unwrap_or_default());
                }
            },
        }
    }
}

/// Sends data as the client makes room for it.
pub(super) async fn send_data(
    mut data: Bytes,
    stream: &mut SendStream<Bytes>,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(room) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return Ok(()) };
        stream.send_data(data.split_to(room?.min(data.len())), false)?;
    }
    Ok(())
}

/// A request's body.
struct Received(RecvStream);

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let stream = &mut self.0;
        Poll::Ready(match ready!(stream.poll_data(cx)) {
            Some(Ok(data)) => {
                // Makes room for more.
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
