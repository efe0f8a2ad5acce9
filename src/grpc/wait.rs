//! Calls that wait for their client: to send the rest of a request, or to read an answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tonic::Status;

use super::budget::Share;
use super::call::{self, Complete, Next, Outcome};
use super::connection::Shared;
use super::hold::Held;
use super::outbound::{ANSWER_BYTES, Outbound};
use crate::store::Store;

/// A call that waits for its client.
pub(super) enum Waiting {
    Request(Incomplete),
    Answer(Unread),
}

impl Waiting {
    /// Waits, as long as a client may take.
    pub async fn finish<S: Store + 'static>(self, shared: Arc<Shared<S>>) -> Next {
        match self {
            Waiting::Request(incomplete) => incomplete.receive(&shared).await,
            Waiting::Answer(unread) => Next::Done(unread.deliver(&shared).await),
        }
    }
}

/// A request that has not arrived whole.
pub(super) struct Incomplete {
    pub first: Bytes,
    pub body: RecvStream,
    pub timeout: Option<Duration>,
    pub respond: SendResponse<Bytes>,
}

impl Incomplete {
    async fn receive<S: Store + 'static>(self, shared: &Shared<S>) -> Next {
        let Incomplete { first, mut body, timeout, respond } = self;
        let mut share = shared.account.share();
        let read = async {
            let (mut whole, mut more) = (BytesMut::new(), first);
            loop {
                let received = more.len();
                whole.extend_from_slice(&more);
                // It lies in the connection's read buffer, and would keep all of that.
                drop(more);
                call::announced(&whole, &shared.grpc.limits)?;
                if !share.resize(whole.capacity()) {
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
            Ok(Ok(None)) => return Next::Done(Outcome::Reset),
            Ok(Err(status)) => {
                return call::send(
                    shared,
                    respond,
                    (Err(status), Held::default()),
                    Outcome::Answered,
                );
            }
            Err(_) => {
                let status = Status::deadline_exceeded("the request did not arrive in time");
                return call::send(
                    shared,
                    respond,
                    (Err(status), Held::default()),
                    Outcome::Answered,
                );
            }
        };
        let (share, outcome) = (Some(share), Outcome::Answered);
        call::complete(shared, Complete { message, timeout, respond, share, outcome })
    }
}

/// An answer that its client does not let be sent yet.
pub(super) struct Unread {
    stream: SendStream<Bytes>,
    message: Bytes,
    held: Held,
    share: Share,
    outcome: Outcome,
}

impl Unread {
    /// Lets an answer wait, or resets its stream where clients let too much wait.
    pub fn wait<S>(
        shared: &Shared<S>,
        mut stream: SendStream<Bytes>,
        message: Bytes,
        held: Held,
        outcome: Outcome,
    ) -> Next {
        let mut share = shared.account.share();
        if !share.resize(message.len() + ANSWER_BYTES) {
            // For a client of gRPC that is RESOURCE_EXHAUSTED.
            stream.send_reset(Reason::ENHANCE_YOUR_CALM);
            return Next::Done(outcome);
        }
        Next::Wait(Waiting::Answer(Unread { stream, message, held, share, outcome }))
    }

    /// Sends the answer as its client makes room for it; resets the stream if that takes too long.
    async fn deliver<S>(self, shared: &Shared<S>) -> Outcome {
        let Unread { mut stream, message, held, share, outcome } = self;
        let sent = send_data(message, &mut stream, &shared.outbound);
        match tokio::time::timeout(shared.grpc.limits.timeout, sent).await {
            Ok(Ok(())) => {
                if stream.send_trailers(call::good()).is_ok() {
                    held.sent();
                }
            }
            _ => stream.send_reset(Reason::CANCEL),
        }
        drop(share);
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
