//! Turns, memory, passwords and the end of connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::client::{Client, Server, password};
use crate::resp::Limits;

const PATIENCE: Duration = Duration::from_secs(20);

/// A client that always has sent more: a part of its requests at a time, as TLS passes records on.
struct Flood {
    requests: Vec<u8>,
    record: usize,
    read: Arc<AtomicUsize>,
}

impl AsyncRead for Flood {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &self.requests[self.read.load(Ordering::Relaxed)..];
        let record = &rest[..self.record.min(rest.len()).min(buffer.remaining())];
        buffer.put_slice(record);
        self.read.fetch_add(record.len(), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Flood {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        sent: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(sent.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn limits() -> Limits {
    let timeout = Duration::from_secs(3_600);
    Limits { timeout, max_request: 256 << 10, max_buffered: 8 << 20 }
}

#[tokio::test]
async fn a_flood_of_small_records_leaves_other_tasks_their_turn() {
    for record in [6, 1_000, 8_000, 16 << 10, 100_000] {
        let server = Server::in_memory(limits(), None);
        let read = Arc::new(AtomicUsize::new(0));
        let requests = b"PING\r\n".repeat(100_000);
        let (all, flood) = (requests.len(), Flood { requests, record, read: read.clone() });
        let served = server.serve(flood);
        let mut before = 0;
        while !served.is_finished() {
            yield_now().await;
            let now = read.load(Ordering::Relaxed);
            assert!(
                now - before <= 32 << 10,
                "{} bytes in a turn, records of {record}",
                now - before
            );
            before = now;
        }
        assert_eq!(before, all);
    }
}

/// Starts a request of `length` bytes, and sends `sent` of them.
async fn send_part(stream: &mut DuplexStream, length: usize, sent: usize) {
    let head = format!("*2\r\n$4\r\nECHO\r\n${length}\r\n");
    // The server may have closed the connection.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&vec![b'x'; sent]).await;
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited until {what}"));
}

/// Sends an argument and reads the reply.
async fn echo(stream: &mut DuplexStream, length: usize) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sending = async {
        let head = format!("*2\r\n$4\r\nECHO\r\n${length}\r\n");
        writer.write_all(head.as_bytes()).await.unwrap();
        writer.write_all(&vec![b'y'; length]).await.unwrap();
        writer.write_all(b"\r\n").await.unwrap();
    };
    let reading = async {
        let expected = format!("${length}\r\n{}\r\n", "y".repeat(length));
        let mut reply = vec![0; expected.len()];
        reader.read_exact(&mut reply).await.unwrap();
        assert!(reply == expected.as_bytes());
    };
    timeout(PATIENCE, async { tokio::join!(sending, reading) }).await.expect("a reply");
}

#[tokio::test]
async fn requests_in_part_share_memory() {
    let server = Server::in_memory(limits(), None);
    let mut hostile: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for stream in &mut hostile {
        send_part(stream, 250_000, 200_000).await;
    }
    // Each holds at least 200 000 bytes, of which 64 KiB are free.
    wait_until("the memory is used up", || server.stats().memory_refusals.get() >= 38).await;
    assert!(server.stats().memory_refusals.get() < 100);
    let mut reply = String::new();
    hostile.pop().unwrap().read_to_string(&mut reply).await.unwrap();
    assert_eq!(
        reply,
        "-ERR buffered requests and replies use too much memory (setting clients.max_buffered)\r\n"
    );
    // Small requests are free. Large ones have room again when others are gone.
    let mut client = server.connect();
    echo(&mut client, 16_000).await;
    drop(hostile);
    let mut client = server.connect();
    // Their connections end.
    yield_now().await;
    echo(&mut client, 250_000).await;
}

#[tokio::test]
async fn unread_replies_share_memory() {
    let server = Server::in_memory(limits(), None);
    let mut hostile: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for stream in &mut hostile {
        // The pipe has room for one reply. The requests are in the part that is free.
        for _ in 0..2 {
            send_part(stream, 60_000, 60_000).await;
            let _ = stream.write_all(b"\r\n").await;
        }
    }
    wait_until("the memory is used up", || server.stats().memory_refusals.get() >= 61).await;
    assert!(server.stats().memory_refusals.get() < 200);
    let mut client = server.connect();
    echo(&mut client, 16_000).await;
    // A client within the limit gets its replies when it reads.
    let mut replies = Vec::new();
    hostile[0].shutdown().await.unwrap();
    timeout(PATIENCE, hostile[0].read_to_end(&mut replies)).await.expect("the end").unwrap();
    assert_eq!(replies.len(), 2 * (60_000 + "$60000\r\n\r\n".len()));
}

#[tokio::test]
async fn a_client_without_the_password_gets_little_memory() {
    let server = Server::in_memory(limits(), Some(password("secret")));
    let mut stream = server.connect();
    send_part(&mut stream, 20_000, 10).await;
    let mut reply = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut reply));
    read.await.expect("the end of the connection").unwrap();
    assert_eq!(reply, "-ERR Protocol error: unauthenticated bulk length\r\n");
    let mut stream = server.connect();
    stream.write_all(b"AUTH secret\r\n").await.unwrap();
    stream.read_exact(&mut [0; 5]).await.unwrap();
    echo(&mut stream, 20_000).await;
}

#[tokio::test]
async fn wrong_passwords_are_counted() {
    let mut client = Client::connect(Some(password("secret")));
    let lines = "PING\r\nAUTH wrong\r\nAUTH ann secret\r\nHELLO 3\r\nHELLO 3 AUTH default wrong";
    client.send_until(lines, "AUTH secret", "+OK\r\n").await;
    assert_eq!(client.stats.wrong_passwords.get(), 3);
}

#[tokio::test]
async fn a_client_that_never_pauses_cannot_delay_a_shutdown() {
    let mut client = Client::connect(None);
    assert_eq!(client.send("PING").await, "+PONG");
    client.stream.write_all(b"ECHO a").await.unwrap();
    // The incomplete request is read.
    yield_now().await;
    client.shutdown.send(true).unwrap();
    // The server notices the shutdown, and waits for the rest of the request.
    yield_now().await;
    let (mut reader, mut writer) = tokio::io::split(client.stream);
    let sending = async {
        // Whatever is read together ends within a request.
        while writer.write_all(b"\r\nECHO a").await.is_ok() {}
    };
    let reading = async {
        let mut replies = Vec::new();
        reader.read_to_end(&mut replies).await.unwrap();
        replies
    };
    let (_, replies) = timeout(PATIENCE, async { tokio::join!(sending, reading) })
        .await
        .expect("the connection ends");
    // The request that was incomplete at the shutdown is answered.
    assert!(replies.starts_with(b"$1\r\na\r\n"), "{replies:?}");
}

#[tokio::test]
async fn http_requests_are_not_executed() {
    for request in ["POST / HTTP/1.1", "host: localhost", "Post /"] {
        let mut client = Client::connect(None);
        let lines = format!("PING\r\n{request}\r\n\r\nWEIR.CHECK shop 1 user ann\r\n");
        client.stream.write_all(lines.as_bytes()).await.unwrap();
        let mut replies = String::new();
        client.stream.read_to_string(&mut replies).await.unwrap();
        assert_eq!(replies, "+PONG\r\n", "{request}");
    }
}
