//! The states of a call of `ShouldRateLimit`: see [`call`](super::call).

use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tonic::Status;

use super::call_context::CallContext;
use super::outbound::RESPONSE_OVERHEAD_BYTES;
use super::stats::Started;
use crate::connections::Reservation;
use crate::service::HoldGuard;
use crate::trace::RequestTrace;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Answered,
    /// The client reset the request before it was read.
    Reset,
}

/// What a call waits for.
pub(super) enum CallState {
    Done(CallOutcome),
    WaitForClient(ClientWait),
    WaitForStore(CompleteRequest),
}

/// A request that has been received whole.
pub(super) struct CompleteRequest {
    pub message: Bytes,
    /// The timeout that the client sent, if any.
    pub timeout: Option<Duration>,
    pub trace: RequestTrace,
    pub respond: SendResponse<Bytes>,
    pub started: Started,
    /// The memory that the message holds, if it is counted.
    pub reservation: Option<Reservation>,
    pub outcome: CallOutcome,
}

/// A call that waits for its client.
pub(super) enum ClientWait {
    Request(PartialRequest),
    Response(PendingResponse),
}

/// A request that has been received in part.
pub(super) struct PartialRequest {
    pub first: Bytes,
    pub body: RecvStream,
    pub timeout: Option<Duration>,
    pub trace: RequestTrace,
    pub respond: SendResponse<Bytes>,
}

/// A response that the flow-control window, or the socket, does not take yet.
pub(super) struct PendingResponse {
    pub stream: SendStream<Bytes>,
    pub message: Bytes,
    pub held: HoldGuard,
    pub reservation: Reservation,
    pub outcome: CallOutcome,
}

impl PendingResponse {
    /// Lets a response wait, or resets its stream if the memory for clients is used up.
    pub fn wait<S>(
        shared: &CallContext<S>,
        mut stream: SendStream<Bytes>,
        message: Bytes,
        held: HoldGuard,
        outcome: CallOutcome,
    ) -> CallState {
        let mut reservation = shared.budget.reservation();
        if !reservation.resize(message.len() + RESPONSE_OVERHEAD_BYTES) {
            // gRPC clients map this to RESOURCE_EXHAUSTED.
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
}

/// The status of a call that [`MemoryBudget`](crate::connections::MemoryBudget) has no room for.
pub(super) fn memory_exceeded() -> Status {
    let text = "buffered requests and responses use too much memory (setting clients.max_buffered): \
                send smaller requests, complete them, or read the responses";
    Status::resource_exhausted(text)
}
