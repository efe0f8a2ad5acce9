//! One connection, from its first request to its close.
//!
//! Requests are answered one after the other, in the order in which they were sent. A connection reads a few
//! kilobytes at a time, answers the requests in them, writes the replies, and lets other connections have their turn.
//! Nothing more is read until a client has taken its replies, so it can keep neither the thread nor much memory busy.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::parser::Parser;
use super::reply::Replies;
use super::session::{After, Session};
use super::{Resp, commands};
use crate::connections::ConnectionHandle;
use crate::store::{States, Store};

/// Bytes that are read at a time.
const READ_BYTES: usize = 4 << 10;

/// Replies are sent when they are longer, even if more requests were read.
const WRITE_BYTES: usize = 16 << 10;

/// Serves a connection until it is closed, or until `shutdown` turns true and all that was read is answered.
pub(super) async fn serve<S: Store + States + 'static>(
    resp: &Resp<S>,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    handle: &Arc<ConnectionHandle>,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut session = Session::new(resp.next_id(), &resp.password);
    let (mut input, mut parser, mut replies) = (Vec::new(), Parser::default(), Replies::default());
    // When the rest of a request has to be there.
    let mut deadline: Option<Instant> = None;
    loop {
        let read = async {
            input.reserve(READ_BYTES);
            let mut limited = (&mut stream).take(READ_BYTES as u64);
            let read = limited.read_buf(&mut input);
            match deadline {
                Some(deadline) => timeout_at(deadline, read).await.unwrap_or(Ok(0)),
                None => read.await,
            }
        };
        let read = tokio::select! {
            biased;
            read = read => read,
            () = handle.evicted() => return,
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        };
        // 0: closed by the client, or too slow.
        let Ok(1..) = read else { return };
        let mut start = 0;
        loop {
            match parser.read(&input[start..], resp.limits.max_request) {
                Ok(Some(request)) => {
                    handle.set_busy(true);
                    let request_bytes = &input[start..start + request.length];
                    let after = commands::answer(
                        resp,
                        &mut session,
                        request_bytes,
                        &request.arguments,
                        &mut replies,
                    )
                    .await;
                    start += request.length;
                    handle.count_request();
                    if after == After::Close {
                        let _ = write(resp, &mut stream, &mut replies).await;
                        return;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    replies.error(&format!("ERR {error}"));
                    let _ = write(resp, &mut stream, &mut replies).await;
                    return;
                }
            }
            if replies.bytes().len() >= WRITE_BYTES
                && write(resp, &mut stream, &mut replies).await.is_none()
            {
                return;
            }
        }
        input.drain(..start);
        if write(resp, &mut stream, &mut replies).await.is_none() {
            return;
        }
        handle.set_busy(false);
        if input.is_empty() {
            // Idle connections keep no buffers.
            (input, deadline) = (Vec::new(), None);
            replies.shrink_to(0);
        } else if start > 0 || deadline.is_none() {
            deadline = Instant::now().checked_add(resp.limits.timeout);
        }
        tokio::task::yield_now().await;
    }
}

/// Sends the replies. None if the client does not take them in time.
async fn write<S>(
    resp: &Resp<S>,
    stream: &mut (impl AsyncWrite + Unpin),
    replies: &mut Replies,
) -> Option<()> {
    if replies.bytes().is_empty() {
        return Some(());
    }
    let write = async {
        stream.write_all(replies.bytes()).await?;
        stream.flush().await
    };
    timeout(resp.limits.timeout, write).await.ok()?.ok()?;
    replies.clear();
    Some(())
}
