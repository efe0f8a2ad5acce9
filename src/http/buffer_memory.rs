//! Bounds the memory for large request and response bodies: of all clients of `/json`, and separately of `/v1`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::StreamExt;

use crate::net::ClientMemory;

/// Bytes of each body that do not count, so that small requests do not fail because of large ones. The
/// number of connections bounds them.
pub(super) const FREE_BYTES: usize = 16 << 10;

#[derive(Clone, Debug)]
pub(super) struct BufferMemory(Arc<ClientMemory>);

impl BufferMemory {
    pub fn new(max_bytes: usize) -> BufferMemory {
        BufferMemory(ClientMemory::new(max_bytes, FREE_BYTES))
    }

    pub fn permit(&self) -> BufferPermit {
        BufferPermit { memory: self.0.clone(), held: 0 }
    }
}

/// The part of the memory that one request holds, released when this is dropped.
#[derive(Debug)]
pub(super) struct BufferPermit {
    memory: Arc<ClientMemory>,
    /// Bytes beyond [`FREE_BYTES`].
    held: usize,
}

impl BufferPermit {
    /// Grows the permit to `bytes`. Returns false if there is no room for that.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(FREE_BYTES).saturating_sub(self.held);
        let has_room = self.memory.try_acquire(more);
        if has_room {
            self.held += more;
        }
        has_room
    }

    fn release(&mut self) {
        self.memory.release(std::mem::take(&mut self.held));
    }
}

impl Drop for BufferPermit {
    fn drop(&mut self) {
        self.release();
    }
}

/// Returns a response body that holds `permit` until it is sent; none if there is no room for it.
pub(super) fn response(body: Vec<u8>, mut permit: BufferPermit) -> Option<Body> {
    struct CountedBody {
        body: Vec<u8>,
        _permit: BufferPermit,
    }
    impl AsRef<[u8]> for CountedBody {
        fn as_ref(&self) -> &[u8] {
            &self.body
        }
    }
    let has_room = permit.grow_to(body.len());
    has_room.then(|| Bytes::from_owner(CountedBody { body, _permit: permit }).into())
}

/// Reads a body of at most `max` bytes, within a timeout. If there is no room for it, the body is
/// received and dropped, since a client that is still sending would not read a response. Fails with 413 if it is
/// too large or incomplete, 408 if it is too slow, and 503 without room.
pub(super) async fn read(
    body: Body,
    max: usize,
    timeout: Duration,
    permit: &mut BufferPermit,
) -> Result<Vec<u8>, StatusCode> {
    let read = tokio::time::timeout(timeout, receive(body, max, permit)).await;
    read.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
}

async fn receive(body: Body, max: usize, permit: &mut BufferPermit) -> Result<Vec<u8>, StatusCode> {
    let mut body = body.into_data_stream();
    let (mut whole, mut received) = (Some(Vec::new()), 0);
    while let Some(frame) = body.next().await {
        let frame = frame.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        received += frame.len();
        if received > max {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let Some(bytes) = &mut whole else { continue };
        if received > bytes.capacity() {
            // What counts is the allocated bytes.
            let capacity = received.next_power_of_two();
            if !permit.grow_to(capacity) {
                whole = None;
                permit.release();
                continue;
            }
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&frame);
    }
    whole.ok_or(StatusCode::SERVICE_UNAVAILABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_together_and_released() {
        let memory = BufferMemory::new(100);
        let (mut one, mut two) = (memory.permit(), memory.permit());
        assert!(one.grow_to(FREE_BYTES) && one.grow_to(FREE_BYTES + 60));
        assert!(one.grow_to(10), "it holds that already");
        assert!(!two.grow_to(FREE_BYTES + 41) && two.grow_to(FREE_BYTES + 40));
        assert!(!one.grow_to(FREE_BYTES + 61));
        assert!(memory.permit().grow_to(FREE_BYTES) && !memory.permit().grow_to(FREE_BYTES + 1));
        drop(one);
        assert!(two.grow_to(FREE_BYTES + 100));
        drop(two);
        assert!(memory.permit().grow_to(FREE_BYTES + 100));
    }

    #[test]
    fn a_response_holds_its_part_until_it_is_sent() {
        let memory = BufferMemory::new(100);
        let body = |bytes| response(vec![b'x'; FREE_BYTES + bytes], memory.permit());
        let sent = body(60);
        assert!(sent.is_some() && body(41).is_none() && body(40).is_some());
        drop(sent);
        assert!(body(100).is_some());
    }

    fn body(frames: usize) -> Body {
        let frame = || Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 1 << 10]));
        Body::from_stream(futures_util::stream::iter((0..frames).map(move |_| frame())))
    }

    #[tokio::test]
    async fn bodies_are_read_within_the_limit_and_the_memory() {
        let memory = BufferMemory::new(48 << 10);
        let (mut one, mut two, mut three) = (memory.permit(), memory.permit(), memory.permit());
        let max = 64 << 10;
        assert_eq!(receive(body(64), max, &mut one).await.unwrap(), [b'x'; 64 << 10]);
        assert_eq!(receive(body(65), max, &mut two).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
        assert_eq!(receive(body(17), max, &mut two).await, Err(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(receive(body(16), max, &mut three).await.unwrap().len(), 16 << 10);
        drop(one);
        assert_eq!(receive(body(64), max, &mut two).await.unwrap().len(), 64 << 10);
    }
}
