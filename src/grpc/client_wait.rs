//! Calls that wait for their client: to send the rest of a request, or to read an answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tonic::Status;

use super::budget::Reservation;
use super::call::{self, CallOutcome, CallState, CompleteRequest};
use super::connection::Shared;
use super::hold_guard::HoldGuard;
use super::outbound::{Outbound, RESPONSE_OVERHEAD_BYTES};
use crate::store::Store;

/// A call that waits for its client.
pub(super) enum ClientWait {
    Request(PartialRequest),
    Response(PendingResponse),
}

impl ClientWait {
    /// Waits, as long as a client may take.
    pub async fn finish<S: Store + 'static>(self, shared: Arc<Shared<S>>) -> CallState {
        match self {
            ClientWait::Request(incomplete) => incomplete.receive(&shared).await,
            ClientWait::Response(unread) => CallState::Done(unread.deliver(&shared).await),
        }
    }
}

/// A request that has not arrived whole.
pub(super) struct PartialRequest {
    pub first: Bytes,
    pub body: RecvStream,
    pub timeout: Option<Duration>,
    pub respond: SendResponse<Bytes>,
}

impl PartialRequest {
    async fn receive<S: Store + 'static>(self, shared: &Shared<S>) -> CallState {
        let PartialRequest { first, mut body, timeout, respond } = self;
        let mut reservation = shared.budget.reservation();
        let read = async {
            let (mut whole, mut more) = (BytesMut::new(), first);
            loop {
                let received = more.len();
                whole.extend_from_slice(&more);
                // It lies in the connection's read buffer, and would keep all of that.
                drop(more);
                call::announced(&whole, &shared.grpc.limits)?;
                if !reservation.resize(whole.capacity()) {
                    return Err(call::too_much_held());
                }
                // Makes room for more.
                let _ = body.flow_control().release_capacity(received);
                more = match poll_fn(|cx| body.poll_data(cx)).await {
                    Some(Ok(more)) => more,
                    Some(Err(_)) => return Ok(None),
                    None => return Ok(Some(whole.freeze())),
                };
            }
        };
        let message = match tokio::time::timeout(shared.grpc.limits.timeout, read).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return CallState::Done(CallOutcome::Reset),
            Ok(Err(status)) => {
                return call::send(
                    shared,
                    respond,
                    (Err(status), HoldGuard::default()),
                    CallOutcome::Answered,
                );
            }
            Err(_) => {
                let status = Status::deadline_exceeded("the request did not arrive in time");
                return call::send(
                    shared,
                    respond,
                    (Err(status), HoldGuard::default()),
                    CallOutcome::Answered,
                );
            }
        };
        let (reservation, outcome) = (Some(reservation), CallOutcome::Answered);
        call::complete(shared, CompleteRequest { message, timeout, respond, reservation, outcome })
    }
}

/// An answer that its client does not let be sent yet.
pub(super) struct PendingResponse {
    stream: SendStream<Bytes>,
    message: Bytes,
    held: HoldGuard,
    reservation: Reservation,
    outcome: CallOutcome,
}

impl PendingResponse {
    /// Lets an answer wait, or resets its stream where clients let too much wait.
    pub fn wait<S>(
        shared: &Shared<S>,
        mut stream: SendStream<Bytes>,
        message: Bytes,
        held: HoldGuard,
        outcome: CallOutcome,
    ) -> CallState {
        let mut reservation = shared.budget.reservation();
        if !reservation.resize(message.len() + RESPONSE_OVERHEAD_BYTES) {
            // For a client of gRPC that is RESOURCE_EXHAUSTED.
            stream.send_reset(Reason::ENHANCE_YOUR_CALM);
            return CallState::Done(outcome);
        }
        CallState::WaitForClient(ClientWait::Response(PendingResponse {
            stream,
            message,
            held,
            reservation,
            outcome,
        }))
    }

    /// Sends the answer as its client makes room for it; resets the stream if that takes too long.
    async fn deliver<S>(self, shared: &Shared<S>) -> CallOutcome {
        let PendingResponse { mut stream, message, held, reservation, outcome } = self;
        let sent = send_data(message, &mut stream, &shared.outbound);
        match tokio::time::timeout(shared.grpc.limits.timeout, sent).await {
            Ok(Ok(())) => {
                if stream.send_trailers(call::good()).is_ok() {
                    held.keep();
                }
            }
            _ => stream.send_reset(Reason::CANCEL),
        }
        drop(reservation);
        outcome
    }
}

async fn send_data(
    mut data: Bytes,
    stream: &mut SendStream<Bytes>,
    outbound: &Outbound,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = poll_fn(|cx| {
            if outbound.is_full() {
                // The connection does not poll calls that wait for the client until it has written.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            stream.poll_capacity(cx)
        });
        // None: the client has reset the request.
        let Some(room) = room.await else { return Ok(()) };
        let part = data.split_to(room?.min(data.len()));
        outbound.hand_over(part.len());
        stream.send_data(part, false)?;
    }
    Ok(())
}
