//! Serves one HTTP/2 connection of a gRPC client, from its handshake to its close.
//!
//! ```text
//!                          asked to leave              deadline passed, no call waits
//! handshake ──▶ Open ───────────────────────▶ Draining ────────────────────────────▶ closed
//!                │ └─── old ───▶ Aged ────────────▲ │                                   ▲
//!                │                │   asked to leave │         deadline passed           │
//!                └────────────────┴──────────────────┴──── too many resets, failure ─────┘
//! ```
//!
//! | state      | event                                 | action                          | next       |
//! | ---------- | ------------------------------------- | ------------------------------- | ---------- |
//! | `Open`     | the service shuts down                | GOAWAY, then `clients.timeout`  | `Draining` |
//! | `Open`     | evicted, has made a request           | GOAWAY, deadline 100 ms         | `Draining` |
//! | `Open`     | evicted, has never made a request     | final GOAWAY, deadline 100 ms   | `Draining` |
//! | `Open`     | `grpc.max_connection_age` old         | GOAWAY, deadline                | `Aged`     |
//! |            |                                       | `grpc.max_connection_age_grace` |            |
//! | `Aged`     | the service shuts down, or evicted    | as in `Open`                    | `Draining` |
//! | `Aged`     | the deadline passed                   |                                 | closed     |
//! | `Draining` | the deadline passed, no call waits    |                                 | closed     |
//! | all        | too many resets                       | log, GOAWAY `ENHANCE_YOUR_CALM` | closed     |
//! | all        | h2 is done or reports an error        |                                 | closed     |
//! | all        | responses unread: `clients.timeout`   |                                 | closed     |
//! | all        | a ping unanswered: `clients.timeout`  |                                 | closed     |
//!
//! GOAWAY is graceful unless it is final: first one that refuses no stream and a ping, then, when the
//! client has answered that, one that names the last stream. The client's requests that cross the
//! first are answered. After the last response h2 closes the connection.
//!
//! Each poll takes the same steps, in this order:
//!
//! 1. `poll_exchange`, repeated while requests arrive and responses can be written:
//!    1. `ConnectionCalls::poll` answers all requests that arrived together, before h2 writes;
//!    2. `poll_requests` has h2 write and read, and queues the requests that it has read;
//!    3. `poll_written` runs the deadline of unread responses.
//! 2. `poll_state` changes the state if necessary, and then repeats step 1 to send GOAWAY.
//! 3. The keep-alive pings and the age.

#[cfg(test)]
mod tests;

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{self, Builder};
use h2::{Ping, PingPong, Reason};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use super::call::CallContext;
use super::calls::{self, ConnectionCalls};
use super::resets::TooManyResets;
use super::server::Limits;
use crate::net::{ConnectionHandle, WriteDeadline};
use weir_common::threads::random;
use weir_store::Store;

/// The flow-control window of a connection, and of each of its streams: HTTP/2's initial window,
/// below which that of a connection cannot be set.
const WINDOW_BYTES: u32 = (1 << 16) - 1;

/// The largest header list of a request: Envoy sends some 500 bytes.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Bytes of a response that h2 buffers. Larger responses are sent in parts.
const SEND_BUFFER_BYTES: usize = 16 << 10;

/// Requests that may be reset before h2 has handed them over, which it does after each read. A read
/// of 4 KiB holds about 160 requests, so this is never reached; `resets` has the bound.
const MAX_PENDING_RESETS: usize = 256;

/// How long clients that have just connected may take for their handshake once the service stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The longest interval between two pings.
const PING_INTERVAL: Duration = Duration::from_secs(60);

/// How long an evicted client may take to react to GOAWAY: a newcomer waits for its place.
const EVICTION_GRACE: Duration = Duration::from_millis(100);

/// Serves one connection until it is closed. Drains it once `shutdown` turns true.
pub(super) async fn serve<S: Store>(
    shared: Arc<CallContext<S>>,
    io: impl AsyncRead + AsyncWrite + Unpin,
    handle: &ConnectionHandle,
    mut shutdown: watch::Receiver<bool>,
) {
    let limits = &shared.grpc.limits;
    let Some(mut h2) = handshake(io, handle, limits, &mut shutdown).await else { return };
    let is_old = AtomicBool::new(false);
    let keep_alive = KeepAlive::new(&mut h2, limits);
    let mut keep_alive = pin!(keep_alive.run(&is_old));
    let mut shutdown = pin!(async move { drop(shutdown.wait_for(|shutdown| *shutdown).await) });
    let mut connection = GrpcConnection {
        h2,
        calls: calls::empty(&shared, handle),
        shared: &shared,
        handle,
        is_old: &is_old,
        timeout: limits.timeout,
        state: ConnectionState::Open,
        write_deadline: WriteDeadline::new(limits.timeout),
    };
    match poll_fn(|cx| connection.poll(cx, shutdown.as_mut(), keep_alive.as_mut())).await {
        End::Closed => {}
        End::Abuse => connection.close_as_abusive().await,
    }
}

enum ConnectionState {
    Open,
    /// Sent GOAWAY because of its age. Calls in progress end with the deadline.
    Aged {
        deadline: Pin<Box<Sleep>>,
    },
    /// Sent GOAWAY. Calls that wait at the deadline are still completed.
    Draining {
        deadline: Pin<Box<Sleep>>,
    },
}

enum End {
    /// The connection is closed, or can be dropped as it is.
    Closed,
    /// The client is abusive and gets GOAWAY with `ENHANCE_YOUR_CALM`.
    Abuse,
}

impl From<TooManyResets> for End {
    fn from(_: TooManyResets) -> End {
        End::Abuse
    }
}

struct GrpcConnection<'a, S, T, C> {
    h2: server::Connection<T, Bytes>,
    calls: C,
    shared: &'a CallContext<S>,
    handle: &'a ConnectionHandle,
    /// Set at the maximum age, by what polls the timer of the connection.
    is_old: &'a AtomicBool,
    timeout: Duration,
    state: ConnectionState,
    /// Runs while the client does not read all that was written.
    write_deadline: WriteDeadline,
}

impl<S, T, C> GrpcConnection<'_, S, T, C>
where
    S: Store,
    T: AsyncRead + AsyncWrite + Unpin,
    C: ConnectionCalls,
{
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
        mut keep_alive: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<End> {
        loop {
            if let Err(end) = self.poll_steps(cx, shutdown.as_mut()) {
                return Poll::Ready(end);
            }
            if keep_alive.as_mut().poll(cx).is_ready() {
                return Poll::Ready(End::Closed);
            }
            if !self.is_old_and_open() {
                return Poll::Pending;
            }
        }
    }

    /// Whether the connection has just reached its maximum age.
    fn is_old_and_open(&self) -> bool {
        matches!(self.state, ConnectionState::Open) && self.is_old.load(Ordering::Relaxed)
    }

    fn poll_steps(
        &mut self,
        cx: &mut Context<'_>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), End> {
        loop {
            self.poll_exchange(cx)?;
            let is_changed = self.poll_state(cx, shutdown.as_mut())?;
            if !is_changed {
                return Ok(());
            }
        }
    }

    /// Answers, writes and reads until there is nothing more to do, or the client does not read.
    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        loop {
            self.calls.poll(cx)?;
            let may_have_more_responses = self.shared.outbound.is_full();
            self.poll_requests(cx)?;
            let is_all_written = self.poll_written(cx)?;
            let has_more = self.calls.has_queued() || may_have_more_responses;
            if !(is_all_written && has_more) {
                return Ok(());
            }
        }
    }

    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        loop {
            match self.h2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.calls.queue(request, respond),
                Poll::Ready(Some(Err(error))) => {
                    self.log_failure(&error);
                    return Err(End::Closed);
                }
                Poll::Ready(None) => return Err(End::Closed),
                Poll::Pending => return Ok(()),
            }
        }
    }

    /// Returns whether the socket has taken all that h2 had to write.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        self.calls.count_reset_streams()?;
        if self.shared.outbound.after_write() {
            self.write_deadline.clear();
            return Ok(true);
        }
        if self.write_deadline.poll_passed(cx).is_ready() { Err(End::Closed) } else { Ok(false) }
    }

    /// Asks the client to leave if necessary, and ends a drained connection. Returns whether GOAWAY is to be written.
    fn poll_state(
        &mut self,
        cx: &mut Context<'_>,
        shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<bool, End> {
        let is_draining = matches!(self.state, ConnectionState::Draining { .. });
        if !is_draining && shutdown.poll(cx).is_ready() {
            self.drain(self.timeout);
            self.shut_down();
            return Ok(true);
        }
        match &mut self.state {
            ConnectionState::Open if self.is_old.load(Ordering::Relaxed) => {
                let grace = self.shared.grpc.limits.max_age_grace;
                self.state = ConnectionState::Aged { deadline: Box::pin(sleep(grace)) };
                self.shut_down();
                return Ok(true);
            }
            ConnectionState::Open => {}
            ConnectionState::Aged { deadline } => {
                if deadline.as_mut().poll(cx).is_ready() {
                    return Err(End::Closed);
                }
            }
            ConnectionState::Draining { deadline } => {
                if deadline.as_mut().poll(cx).is_ready() && !self.calls.has_waiting() {
                    return Err(End::Closed);
                }
            }
        }
        self.handle.set_busy(self.is_busy());
        // Polled every time, after `set_busy`: it registers the waker, and a busy connection stays.
        if !is_draining && self.handle.poll_evicted(cx).is_ready() {
            self.drain(EVICTION_GRACE.min(self.timeout));
            if self.handle.is_proven() {
                self.shut_down();
            } else {
                self.h2.abrupt_shutdown(Reason::NO_ERROR);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Sends GOAWAY, and ends the calls that last as long as the connection.
    fn shut_down(&mut self) {
        self.h2.graceful_shutdown();
        self.shared.leaving.get_or_init(|| watch::Sender::new(true)).send_replace(true);
    }

    fn drain(&mut self, grace: Duration) {
        self.state = ConnectionState::Draining { deadline: Box::pin(sleep(grace)) };
    }

    fn is_busy(&self) -> bool {
        self.calls.has_queued()
            || self.calls.has_waiting()
            || Arc::strong_count(&self.shared.tonic_calls) > 1
            || self.h2.has_streams()
    }

    fn log_failure(&self, error: &h2::Error) {
        if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
            self.shared.grpc.log_abuse(self.shared.ends.client, error);
        }
        tracing::debug!(%error, "gRPC connection failed");
    }

    async fn close_as_abusive(&mut self) {
        self.shared.grpc.log_abuse(self.shared.ends.client, &"too many resets");
        self.h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        let _ = timeout(self.timeout, poll_fn(|cx| self.h2.poll_closed(cx))).await;
    }
}

/// Performs the handshake. None if it fails or times out, the connection is evicted, or the service stops.
async fn handshake<T: AsyncRead + AsyncWrite + Unpin>(
    io: T,
    handle: &ConnectionHandle,
    limits: &Limits,
    shutdown: &mut watch::Receiver<bool>,
) -> Option<server::Connection<T, Bytes>> {
    let handshake = Builder::new()
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_window_size(WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_concurrent_streams(limits.max_streams)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        // It would count for the life of the connection; `resets` has the bound.
        .max_local_error_reset_streams(None)
        .handshake::<_, Bytes>(io);
    tokio::select! {
        biased;
        handshake = timeout(limits.timeout, handshake) => handshake.ok()?.ok(),
        () = handle.evicted() => None,
        () = shut_down(shutdown) => None,
    }
}

/// Waits until the service stops and clients that have just connected have had time to send something.
pub(super) async fn shut_down(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|shutdown| *shutdown).await;
    sleep(SHUTDOWN_GRACE).await;
}

/// Pings the client of one connection at intervals, and watches the connection's age. Both share one
/// timer, because it is polled with each read.
struct KeepAlive {
    pings: Option<PingPong>,
    timeout: Duration,
    /// When the connection is old; none if it never is.
    old_at: Option<Instant>,
}

impl KeepAlive {
    fn new<T: AsyncRead + AsyncWrite + Unpin>(
        h2: &mut server::Connection<T, Bytes>,
        limits: &Limits,
    ) -> KeepAlive {
        let Limits { timeout, max_age, .. } = *limits;
        // Connections that were opened together close at different times.
        let old_at = jittered(max_age, random()).and_then(|age| Instant::now().checked_add(age));
        KeepAlive { pings: h2.ping_pong(), timeout, old_at }
    }

    /// Sets `is_old` at the maximum age. Ends when the client does not read or answer a ping in time.
    async fn run(mut self, is_old: &AtomicBool) {
        loop {
            // Connections that were opened together are pinged at different times.
            let wait = PING_INTERVAL.mul_f64(0.5 + random() / 2.0);
            let ping_at = self.pings.as_ref().and_then(|_| Instant::now().checked_add(wait));
            if let Some(old_at) =
                self.old_at.take_if(|old_at| ping_at.is_none_or(|at| *old_at < at))
            {
                sleep_until(old_at).await;
                is_old.store(true, Ordering::Relaxed);
            }
            let (Some(pings), Some(ping_at)) = (&mut self.pings, ping_at) else {
                return pending().await;
            };
            sleep_until(ping_at).await;
            if !matches!(timeout(self.timeout, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
                return;
            }
        }
    }
}

/// Returns an age between 90 % and 110 % of `age`, by a number from 0 to 1; none if it is unlimited.
fn jittered(age: Duration, random: f64) -> Option<Duration> {
    let seconds = age.as_secs_f64() * (0.9 + random / 5.0);
    Duration::try_from_secs_f64(seconds).ok().filter(|_| age != Duration::MAX)
}
