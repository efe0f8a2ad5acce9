//! One connection: takes requests off it, and ends it in good order.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
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

use super::budget::ConnectionBudget;
use super::call::{self, CallOutcome, CallState};
use super::outbound::Outbound;
use super::resets::ResetCounter;
use super::{Grpc, Limits, SHOULD_RATE_LIMIT, tonic_bridge};
use crate::connections::ConnectionHandle;
use crate::random::random;
use crate::store::Store;

/// Bytes a client may send on a connection, and on each of its streams, before they are read. It is
/// what HTTP/2 begins with; a connection's window cannot be smaller.
const WINDOW_BYTES: u32 = (1 << 16) - 1;

/// Bytes of an answer that HTTP/2 takes at once. Larger answers are sent in parts.
const SEND_BUFFER_BYTES: usize = 16 << 10;

/// Requests that may be reset before h2 has handed them over, which it does after each read. A read
/// of 4 KiB holds some 160: this is never met, and [`ResetCounter`] bounds them.
const MAX_PENDING_RESETS: usize = 256;

/// How long an evicted client may take to answer GOAWAY. Its place is needed.
const EVICTION_GRACE: Duration = Duration::from_millis(100);

/// Requests that came together and whose room is kept.
const BURST: usize = 64;

type Incoming = (Request<RecvStream>, SendResponse<Bytes>);

/// What the calls of one connection reservation.
#[derive(Debug)]
pub(super) struct Shared<S> {
    pub grpc: Arc<Grpc<S>>,
    pub budget: Arc<ConnectionBudget>,
    pub outbound: Arc<Outbound>,
    /// Has an owner for each call of another method, and one more.
    pub others: Arc<()>,
}

/// What may happen to a connection.
enum Event {
    /// Its client is to go away.
    Close,
    /// Its place is needed for another connection.
    Evict,
    /// Its client only resets what it requests.
    Abuse,
    /// It is over, in whatever way.
    Ended,
}

pub(super) async fn serve<S: Store + 'static>(
    shared: Arc<Shared<S>>,
    io: impl AsyncRead + AsyncWrite + Unpin,
    handle: &ConnectionHandle,
    peer: Option<SocketAddr>,
    mut closed: watch::Receiver<bool>,
) {
    let Limits { keepalive, timeout: patience, max_headers, max_streams, .. } = shared.grpc.limits;
    let handshake = Builder::new()
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_window_size(WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_header_list_size(max_headers)
        .max_concurrent_streams(max_streams)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .handshake::<_, Bytes>(io);
    // Whoever only connects is not kept.
    let handshake = tokio::select! {
        biased;
        handshake = timeout(patience, handshake) => handshake,
        () = handle.evicted() => return,
    };
    let Ok(Ok(mut connection)) = handshake else { return };
    let mut life = pin!(KeepAlive::new(&mut connection, keepalive, patience).watch());
    let mut closing = pin!(async move { drop(closed.wait_for(|closed| *closed).await) });
    // Set where it closes: who does not take note of that by then is not waited for.
    let mut closes = pin!(None::<Sleep>);
    // Set while the client does not read all there is for it.
    let mut unread: Option<Pin<Box<Sleep>>> = None;
    let mut requests: VecDeque<Incoming> = VecDeque::new();
    let mut resets = ResetCounter::default();
    // Calls that wait for the store, and those that wait for the client. They are apart since the
    // first are large, and clients can make the others last.
    let mut asking = FuturesUnordered::new();
    let mut waiting = FuturesUnordered::new();
    loop {
        let event = poll_fn(|cx| {
            loop {
                // All that came together is answered before the connection writes.
                loop {
                    let is_full = shared.outbound.is_full();
                    let next = if !is_full && let Some((request, respond)) = requests.pop_front() {
                        handle.count_request();
                        begin(&shared, request, respond)
                    } else if !asking.is_empty()
                        && let Poll::Ready(Some(next)) = asking.poll_next_unpin(cx)
                    {
                        next
                    } else if !is_full
                        && !waiting.is_empty()
                        && let Poll::Ready(Some(next)) = waiting.poll_next_unpin(cx)
                    {
                        next
                    } else {
                        break;
                    };
                    match next {
                        // There are more only where the client resets those that wait.
                        CallState::WaitForStore(_) if asking.len() >= max_streams as usize => {}
                        CallState::WaitForStore(request) => {
                            asking.push(request.ask(shared.clone()))
                        }
                        CallState::WaitForClient(call) => waiting.push(call.finish(shared.clone())),
                        CallState::Done(outcome) => {
                            if resets.count(outcome == CallOutcome::Reset) {
                                return Poll::Ready(Event::Abuse);
                            }
                        }
                    }
                }
                // What a burst needed is not kept.
                requests.shrink_to(BURST);
                let is_more_to_answer = shared.outbound.is_full();
                loop {
                    match connection.poll_accept(cx) {
                        Poll::Ready(Some(Ok(request))) => requests.push_back(request),
                        Poll::Ready(Some(Err(error))) => {
                            let reason = error.reason();
                            if error.is_library() && reason == Some(Reason::ENHANCE_YOUR_CALM) {
                                shared.grpc.log_abuse(peer, &error);
                            }
                            tracing::debug!(%error, "a connection over gRPC failed");
                            return Poll::Ready(Event::Ended);
                        }
                        Poll::Ready(None) => return Poll::Ready(Event::Ended),
                        Poll::Pending => break,
                    }
                }
                let is_all_written = shared.outbound.written();
                if is_all_written {
                    unread = None;
                } else {
                    let unread = unread.get_or_insert_with(|| Box::pin(sleep(patience)));
                    if unread.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Event::Ended);
                    }
                }
                if requests.is_empty() && !is_more_to_answer || !is_all_written {
                    break;
                }
            }
            let late = match closes.as_mut().as_pin_mut() {
                None if closing.as_mut().poll(cx).is_ready() => return Poll::Ready(Event::Close),
                None => false,
                Some(late) => late.poll(cx).is_ready(),
            };
            if late && asking.is_empty() && waiting.is_empty() {
                return Poll::Ready(Event::Ended);
            }
            let asks = !(requests.is_empty() && asking.is_empty() && waiting.is_empty());
            let busy = asks || Arc::strong_count(&shared.others) > 1 || connection.has_streams();
            handle.set_busy(busy);
            if closes.is_none() && handle.poll_evicted(cx).is_ready() {
                return Poll::Ready(Event::Evict);
            }
            life.as_mut().poll(cx).map(|()| Event::Ended)
        })
        .await;
        match event {
            Event::Close => {
                closes.set(Some(sleep(patience)));
                connection.graceful_shutdown();
            }
            Event::Evict => {
                closes.set(Some(sleep(EVICTION_GRACE.min(patience))));
                if handle.is_proven() {
                    connection.graceful_shutdown();
                } else {
                    connection.abrupt_shutdown(Reason::NO_ERROR);
                }
            }
            Event::Abuse => break,
            Event::Ended => return,
        }
    }
    shared.grpc.log_abuse(peer, &"too many resets");
    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    let _ = timeout(patience, poll_fn(|cx| connection.poll_closed(cx))).await;
}

/// Begins a request.
fn begin<S: Store + 'static>(
    shared: &Shared<S>,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> CallState {
    if request.uri().path() == SHOULD_RATE_LIMIT {
        return call::begin(shared, request, respond);
    }
    tonic_bridge::begin(shared, request, respond);
    CallState::Done(CallOutcome::Answered)
}

/// Asks the client from time to time whether it is still there.
struct KeepAlive {
    pings: Option<PingPong>,
    every: Duration,
    timeout: Duration,
}

impl KeepAlive {
    fn new<T: AsyncRead + AsyncWrite + Unpin>(
        connection: &mut Connection<T, Bytes>,
        every: Duration,
        timeout: Duration,
    ) -> KeepAlive {
        let pings = if every.is_zero() { None } else { connection.ping_pong() };
        KeepAlive { pings, every, timeout }
    }

    /// Ends when the client does not answer, or does not read.
    async fn watch(self) {
        let Some(mut pings) = self.pings else { return std::future::pending().await };
        loop {
            // Connections that were opened together are not all asked at once.
            tokio::time::sleep(self.every.mul_f64(0.5 + random() / 2.0)).await;
            if !matches!(timeout(self.timeout, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
                return;
            }
        }
    }
}
