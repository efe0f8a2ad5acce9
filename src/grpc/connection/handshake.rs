//! The start of a connection, with the bounds that h2 enforces.

use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::Limits;
use crate::connections::ConnectionHandle;

/// The flow-control window of a connection, and of each of its streams: HTTP/2's initial window,
/// below which that of a connection cannot be set.
const WINDOW_BYTES: u32 = (1 << 16) - 1;

/// The largest header list of a request: Envoy sends some 500 bytes.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Bytes of a response that h2 buffers. Larger responses are sent in parts.
const SEND_BUFFER_BYTES: usize = 16 << 10;

/// Requests that may be reset before h2 has handed them over, which it does after each read. A read
/// of 4 KiB holds about 160 requests, so this is never reached; [`ResetCounter`] is the bound.
///
/// [`ResetCounter`]: super::super::reset_counter::ResetCounter
const MAX_PENDING_RESETS: usize = 256;

/// How long clients that have just connected may take for their handshake once the service stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Performs the handshake. None if it fails, times out, the connection is evicted, or the service
/// stops first.
pub(super) async fn handshake<T: AsyncRead + AsyncWrite + Unpin>(
    io: T,
    handle: &ConnectionHandle,
    limits: &Limits,
    shutdown: &mut watch::Receiver<bool>,
) -> Option<Connection<T, Bytes>> {
    let handshake = Builder::new()
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_window_size(WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_concurrent_streams(limits.max_streams)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .handshake::<_, Bytes>(io);
    let stopping = async {
        let _ = shutdown.wait_for(|shutdown| *shutdown).await;
        sleep(SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        biased;
        handshake = timeout(limits.timeout, handshake) => handshake.ok()?.ok(),
        () = handle.evicted() => None,
        () = stopping => None,
    }
}
