//! Answers HTTP/1 clients of the gRPC port. Envoy speaks HTTP/1 to clusters that do not ask for HTTP/2, and then passes
//! all requests.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Grpc;
use super::connection::shut_down;
use super::stats::Refused;
use crate::net::{ConnectionHandle, Stream};
use weir_store::Store;

/// How every connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const ANSWER: &[u8] = b"HTTP/1.1 505 HTTP Version Not Supported\r\n\
content-type: text/plain\r\n\
connection: close\r\n\
\r\n\
this port is for gRPC, which needs HTTP/2: set http2_protocol_options for Envoy's cluster, and use the port of \
http.address for HTTP/1\n";

/// How long an answered client may take to close the connection.
const LINGER: Duration = Duration::from_secs(1);

/// What an answered client may send until then.
const MAX_UNREAD_BYTES: u64 = 64 << 10;

impl<S: Store> Grpc<S> {
    /// Waits for the first bytes of a connection, and returns it unless they are HTTP/1. None if the client is answered
    /// or gone, sends nothing in time, the connection is evicted, or the service stops.
    pub async fn refuse_http1(
        &self,
        stream: Stream,
        peer: Option<SocketAddr>,
        handle: &ConnectionHandle,
        shutdown: &mut watch::Receiver<bool>,
    ) -> Option<Stream> {
        // With TLS, only HTTP/2 is offered.
        if matches!(stream, Stream::Tls(_)) {
            return Some(stream);
        }
        let mut start = [0; PREFACE.len()];
        let received = tokio::select! {
            biased;
            received = timeout(self.limits.timeout, stream.peek(&mut start)) => received.ok()?.ok()?,
            () = handle.evicted() => return None,
            () = shut_down(shutdown) => return None,
        };
        let start = &start[..received];
        if PREFACE.starts_with(start) || !start.first().is_some_and(u8::is_ascii_uppercase) {
            return Some(stream).filter(|_| received > 0);
        }
        let line = start.split(|byte| *byte == b'\r').next().unwrap_or_default();
        self.stats.count_refused(Refused::Http1, peer, &String::from_utf8_lossy(line));
        tokio::select! {
            _ = timeout(LINGER, answer(stream)) => {}
            () = handle.evicted() => {}
        }
        None
    }
}

/// Answers, and waits for the client to close: unread bytes would reset the connection and lose the answer.
async fn answer(mut stream: Stream) -> std::io::Result<u64> {
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    copy(&mut stream.take(MAX_UNREAD_BYTES), &mut sink()).await
}
