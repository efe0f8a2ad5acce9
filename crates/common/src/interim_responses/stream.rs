//! A connection of an HTTP/2 client that ends after too many interim responses.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;
use super::{MAX_INTERIM, TooMany};

/// The plain bytes of an HTTP/2 connection, below TLS.
///
/// A response has one header block that does not end its stream; the others are interim responses.
/// Each request allows `MAX_INTERIM` such blocks. Requests that were answered with fewer add to what
/// the next may have, but only as far as `parallel` requests need.
#[derive(Debug)]
pub struct BoundedStream<S> {
    stream: S,
    sent: Frames,
    received: Frames,
    /// The header blocks that the server may still send.
    allowed: u32,
    max_allowed: u32,
}

impl<S> BoundedStream<S> {
    /// Wraps a connection with up to `parallel` requests in flight.
    pub fn new(stream: S, parallel: u16) -> BoundedStream<S> {
        // Each request needs one block for its response.
        let max_allowed = MAX_INTERIM + u32::from(parallel);
        let (sent, received) = (Frames::of_client(), Frames::of_server());
        BoundedStream { stream, sent, received, allowed: 0, max_allowed }
    }

    fn count_sent(&mut self, bytes: &[u8]) {
        let (allowed, max) = (&mut self.allowed, self.max_allowed);
        self.sent.read(bytes, |head| {
            if head.is_headers() {
                *allowed = (*allowed + MAX_INTERIM + 1).min(max);
            }
        });
    }

    fn count_received(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut left = Some(self.allowed);
        self.received.read(bytes, |head| {
            if head.is_open_headers() {
                left = left.and_then(|left| left.checked_sub(1));
            }
        });
        self.allowed = left.ok_or_else(|| io::Error::other(TooMany))?;
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.count_received(&buffer.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.count_sent(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: Connection> Connection for BoundedStream<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const HEADERS: [u8; 9] = [0, 0, 0, 1, 4, 0, 0, 0, 1];
    const TRAILERS: [u8; 9] = [0, 0, 0, 1, 5, 0, 0, 0, 1];

    /// Sends requests and their answers of this many header blocks, each with trailers, and then the
    /// blocks of one more answer. Returns its error.
    async fn ask(parallel: u16, answers: &[usize], last: usize) -> io::Result<()> {
        let (near, mut far) = duplex(1 << 20);
        let mut client = BoundedStream::new(near, parallel);
        client.write_all(&[0; 24]).await?;
        for blocks in answers {
            client.write_all(&HEADERS).await?;
            let answer = [HEADERS.repeat(*blocks), TRAILERS.to_vec()].concat();
            far.write_all(&answer).await?;
            client.read_exact(&mut vec![0; answer.len()]).await?;
        }
        client.write_all(&HEADERS).await?;
        far.write_all(&HEADERS.repeat(last)).await?;
        client.read_exact(&mut vec![0; 9 * last]).await.map(drop)
    }

    #[tokio::test]
    async fn a_response_may_follow_the_maximum_of_interim_responses() {
        let most = MAX_INTERIM as usize;
        ask(1, &[], most + 1).await.unwrap();
        let error = ask(1, &[], most + 2).await.unwrap_err();
        assert!(error.to_string().contains("more than 32 interim responses (1xx)"), "{error}");
        // Neither long use nor answers of trailers only add up.
        ask(1, &[1; 1_000], most + 1).await.unwrap();
        ask(1, &[0; 1_000], most + 2).await.unwrap_err();
        ask(1, &[most + 1; 1_000], most + 1).await.unwrap();
    }

    #[tokio::test]
    async fn requests_in_flight_may_all_be_answered() {
        let (near, mut far) = duplex(1 << 20);
        let mut client = BoundedStream::new(near, 1_000);
        client.write_all(&[0; 24]).await.unwrap();
        client.write_all(&HEADERS.repeat(1_000)).await.unwrap();
        let answers = HEADERS.repeat(1_000);
        far.write_all(&answers).await.unwrap();
        client.read_exact(&mut vec![0; answers.len()]).await.unwrap();
    }
}
