//! One connection: takes requests off it, and ends it in good order.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep, timeout};

use super::call::{Begun, Outcome};
use super::resets::Resets;
use super::{Grpc, Limits};
use crate::chance::random;
use crate::store::Store;

/// Bytes a client may send on a connection before they are taken off it.
const WINDOW: u32 = 1 << 20;

/// Bytes it may send on one stream; larger requests wait for more.
const STREAM_WINDOW: u32 = 64 << 10;

/// Bytes of a large answer that wait on its stream for its client to take them.
const SEND_BUFFER: usize = 64 << 10;

/// Requests that may be reset before h2 has handed them over, which it does after each read. A read
/// of 4 KiB holds some 160: this is never met, and [`Resets`] bounds them.
const MAX_PENDING_RESETS: usize = 256;

/// Requests that came together and whose room is kept.
const BURST: usize = 64;

type Incoming = (Request<RecvStream>, SendResponse<Bytes>);

/// What may happen to a connection.
enum Event {
    /// Requests came.
    Requests,
    /// Its client is to go away.
    Close,
    /// Its client only resets what it requests.
    Abuse,
    /// It is over, in whatever way.
    Ended,
}

pub(super) async fn serve<S: Store + 'static>(
    grpc: &Arc<Grpc<S>>,
    io: impl AsyncRead + AsyncWrite + Unpin,
    peer: Option<SocketAddr>,
    mut closed: watch::Receiver<bool>,
) {
    let Limits { keepalive, timeout: patience, max_headers, max_streams, .. } = grpc.limits;
    let handshake = Builder::new()
        .initial_connection_window_size(WINDOW)
        .initial_window_size(STREAM_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(max_headers)
        .max_concurrent_streams(max_streams)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .handshake::<_, Bytes>(io);
    // Whoever only connects is not kept.
    let Ok(Ok(mut connection)) = timeout(patience, handshake).await else { return };
    let mut life = pin!(Life::new(&mut connection, keepalive, patience).watch());
    let mut closing = pin!(async move { drop(closed.wait_for(|closed| *closed).await) });
    // Set where it closes: who does not take note of that by then is not waited for.
    let mut closes = pin!(None::<Sleep>);
    let mut requests: Vec<Incoming> = Vec::new();
    let mut resets = Resets::default();
    let others = Arc::new(());
    // What waits for the store, or for the rest of its message.
    let mut calls = FuturesUnordered::new();
    loop {
        let event = poll_fn(|cx| {
            // Before the connection is polled, which then writes what they answer.
            while let Poll::Ready(Some(outcome)) = calls.poll_next_unpin(cx) {
                if resets.count(outcome == Outcome::Reset) {
                    return Poll::Ready(Event::Abuse);
                }
            }
            loop {
                match connection.poll_accept(cx) {
                    Poll::Ready(Some(Ok(request))) => requests.push(request),
                    Poll::Ready(Some(Err(error))) => {
                        if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
                            grpc.log_abuse(peer, &error);
                        }
                        tracing::debug!(%error, "a connection over gRPC failed");
                        return Poll::Ready(Event::Ended);
                    }
                    Poll::Ready(None) => return Poll::Ready(Event::Ended),
                    Poll::Pending => break,
                }
            }
            if !requests.is_empty() {
                return Poll::Ready(Event::Requests);
            }
            let late = match closes.as_mut().as_pin_mut() {
                None if closing.as_mut().poll(cx).is_ready() => return Poll::Ready(Event::Close),
                None => false,
                Some(late) => late.poll(cx).is_ready(),
            };
            if late && calls.is_empty() {
                return Poll::Ready(Event::Ended);
            }
            life.as_mut().poll(cx).map(|()| Event::Ended)
        })
        .await;
        match event {
            // All that came together are answered before the connection writes again.
            Event::Requests => {
                let mut abuse = false;
                for (request, respond) in requests.drain(..) {
                    match grpc.begin(request, respond, &others) {
                        Begun::Done(outcome) => abuse |= resets.count(outcome == Outcome::Reset),
                        Begun::Pending(call) => calls.push(call),
                    }
                }
                if abuse {
                    break;
                }
                // What a burst needed is not kept.
                requests.shrink_to(BURST);
            }
            Event::Close => {
                closes.set(Some(sleep(patience)));
                connection.graceful_shutdown();
            }
            Event::Abuse => break,
            Event::Ended => return,
        }
    }
    grpc.log_abuse(peer, &"too many resets");
    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    let _ = timeout(patience, poll_fn(|cx| connection.poll_closed(cx))).await;
}

/// Asks the client from time to time whether it is still there.
struct Life {
    pings: Option<PingPong>,
    every: Duration,
    patience: Duration,
}

impl Life {
    fn new<T: AsyncRead + AsyncWrite + Unpin>(
        connection: &mut Connection<T, Bytes>,
        every: Duration,
        patience: Duration,
    ) -> Life {
        let pings = if every.is_zero() { None } else { connection.ping_pong() };
        Life { pings, every, patience }
    }

    /// Ends when the client does not answer, or does not read.
    async fn watch(self) {
        let Some(mut pings) = self.pings else { return std::future::pending().await };
        loop {
            // Connections that were opened together are not all asked at once.
            tokio::time::sleep(self.every.mul_f64(0.5 + random() / 2.0)).await;
            if !matches!(timeout(self.patience, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
                return;
            }
        }
    }
}
