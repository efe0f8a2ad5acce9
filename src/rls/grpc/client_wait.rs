//! Calls of `ShouldRateLimit` that wait for their client: to send the rest of the request, or to read the response.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use tonic::{Code, Status};

use super::call::{
    self, CallContext, CallOutcome, CallState, ClientWait, CompleteRequest, PartialRequest,
    PendingResponse, Reply, memory_exceeded,
};
use super::fairness::Outbound;
use super::gzip;
use super::server::Limits;
use crate::net::HeldMemory;
use crate::rls::service::HoldGuard;
use weir_store::Store;

impl ClientWait {
    /// Waits for the client, up to the setting `clients.timeout`.
    pub async fn finish<S: Store>(self, shared: Arc<CallContext<S>>) -> CallState {
        match self {
            ClientWait::Request(request) => request.receive(&shared).await,
            ClientWait::Response(response) => CallState::Done(response.deliver(&shared).await),
        }
    }
}

impl PartialRequest {
    async fn receive<S: Store>(self, shared: &CallContext<S>) -> CallState {
        let PartialRequest { first, mut body, encoding, timeout, mut trace, mut respond } = self;
        let limits = &shared.grpc.limits;
        let mut reservation = shared.memory.reservation();
        let receive = receive_message(first, &mut body, &mut reservation, limits);
        let received = tokio::time::timeout(limits.timeout, receive).await.unwrap_or_else(|_| {
            let text = "the request was not received in time (setting clients.timeout)";
            Err(Status::deadline_exceeded(text))
        });
        let received = match received {
            Ok(Some(message)) if message.first().is_some_and(|flag| *flag != 0) => {
                tokio::select! {
                    biased;
                    _ = poll_fn(|cx| respond.poll_reset(cx)) => Ok(None),
                    inflated = gzip::inflate(message, encoding.as_ref(), &mut reservation, shared)
                        => inflated.map(Some).map_err(|status| match status.code() {
                            Code::ResourceExhausted => status,
                            _ => shared.unreadable(status),
                        }),
                }
            }
            received => received,
        };
        let lists_encodings = encoding.is_some();
        let reply = Reply { respond, outcome: CallOutcome::Answered, lists_encodings };
        match received {
            Ok(Some(message)) => CallState::Complete(CompleteRequest {
                message,
                timeout,
                trace,
                reply,
                started: shared.timer.started(),
                has_waited: false,
                reservation: Some(reservation),
            }),
            Ok(None) => CallState::Done(CallOutcome::Reset),
            Err(status) => {
                trace.end_call(status.code(), status.message());
                call::send(shared, reply, (Err(status), HoldGuard::default()))
            }
        }
    }
}

/// Returns a message with its prefix, or none if the client resets the request.
async fn receive_message(
    first: Bytes,
    body: &mut RecvStream,
    reservation: &mut HeldMemory,
    limits: &Limits,
) -> Result<Option<Bytes>, Status> {
    let (mut whole, mut more) = (BytesMut::new(), first);
    loop {
        let received = more.len();
        whole.extend_from_slice(&more);
        // It would keep the connection's whole read buffer alive.
        drop(more);
        call::announced_length(&whole, limits)?;
        if !reservation.resize(whole.capacity()) {
            return Err(memory_exceeded());
        }
        // Opens the flow-control window again.
        let _ = body.flow_control().release_capacity(received);
        more = match poll_fn(|cx| body.poll_data(cx)).await {
            Some(Ok(more)) => more,
            Some(Err(_)) => return Ok(None),
            None => return Ok(Some(whole.freeze())),
        };
    }
}

impl PendingResponse {
    /// Sends the response as its client reads; resets the stream if that takes too long.
    async fn deliver<S>(self, shared: &CallContext<S>) -> CallOutcome {
        let PendingResponse { mut stream, message, held, reservation, outcome } = self;
        let sent = send_data(message, &mut stream, Some(&shared.outbound));
        match tokio::time::timeout(shared.grpc.limits.timeout, sent).await {
            Ok(Ok(())) => {
                if stream.send_trailers(call::ok_trailers()).is_ok() {
                    held.keep();
                }
            }
            _ => stream.send_reset(Reason::CANCEL),
        }
        drop(reservation);
        outcome
    }
}

/// Sends data as the client reads it, and as `outbound` has room for it: none on a task that is not the connection's.
pub(super) async fn send_data(
    mut data: Bytes,
    stream: &mut SendStream<Bytes>,
    outbound: Option<&Outbound>,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = poll_fn(|cx| {
            if outbound.is_some_and(Outbound::is_full) {
                // This does not spin: the connection writes before it polls these calls again.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            stream.poll_capacity(cx)
        });
        // None: the client has reset the stream.
        let Some(room) = room.await else { return Ok(()) };
        let part = data.split_to(room?.min(data.len()));
        if let Some(outbound) = outbound {
            outbound.hand_over(part.len());
        }
        stream.send_data(part, false)?;
    }
    Ok(())
}
