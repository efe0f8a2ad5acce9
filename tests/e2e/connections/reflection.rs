//! The memory of calls of the reflection service, whose clients may send many requests.

use super::slow::taking;
use super::*;
use crate::support::wait_until;

/// A stream of reflection.
struct Stream {
    requests: h2::SendStream<Bytes>,
    body: h2::RecvStream,
}

/// Starts a stream with a request for the services. None if it is refused.
async fn reflect(client: &mut SendRequest<Bytes>) -> Option<Stream> {
    let path = "http://weir/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let head = Request::post(path).header("content-type", "application/grpc").body(()).unwrap();
    *client = client.clone().ready().await.unwrap();
    let (response, mut requests) = client.send_request(head, false).unwrap();
    requests.send_data(list_services(), false).unwrap();
    let (head, body) = response.await.unwrap().into_parts();
    if let Some(status) = head.headers.get("grpc-status") {
        assert_eq!(status, "8");
        return None;
    }
    Some(Stream { requests, body })
}

fn list_services() -> Bytes {
    framed(b"\x3a\x00")
}

impl Stream {
    /// Reads `count` responses.
    async fn read(&mut self, count: usize) {
        let (mut received, mut ended) = (Vec::new(), 0);
        while ended < count {
            let part = self.body.data().await.expect("a response").unwrap();
            self.body.flow_control().release_capacity(part.len()).unwrap();
            received.extend_from_slice(&part);
            while let Some([_, length @ ..]) = received.first_chunk::<5>() {
                let length = 5 + u32::from_be_bytes(*length) as usize;
                if received.len() < length {
                    break;
                }
                received.drain(..length);
                ended += 1;
            }
        }
    }
}

#[tokio::test]
async fn idle_streams_leave_the_memory_of_clients_to_others() {
    let weir = setup().start();
    let mut idle = Vec::new();
    for _ in 0..40 {
        let mut client = connect(&weir).await;
        let mut stream = reflect(&mut client).await.expect("it is not refused");
        stream.read(1).await;
        idle.push((client, stream));
    }
    // Many on one connection, too.
    let mut client = connect(&weir).await;
    for _ in 0..40 {
        let mut stream = reflect(&mut client).await.expect("it is not refused");
        stream.read(1).await;
        idle.push((client.clone(), stream));
    }
    // A large request in pieces needs more than what is free.
    let large = framed_request(&"x".repeat(800 << 10));
    let pieces = [large.slice(..400 << 10), large.slice(400 << 10..)];
    let mut other = connect(&weir).await;
    let answer = send(&mut other, head(), &pieces).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("0"), "{}", answer.message);
}

#[tokio::test]
async fn memory_is_held_for_what_the_service_does_not_read() {
    // Room for what seven connections do not read.
    let weir = setup().env("WEIR__CLIENTS__MAX_BUFFERED", "16MiB").start();
    let mut unread = Vec::new();
    // A client that takes no responses: after some of them, the service does not read its requests.
    let mut start_unread = async || {
        let mut client = taking(&weir, 0).await;
        let mut stream = reflect(&mut client).await.expect("it is not refused");
        // Once the memory is held, the stream may be reset meanwhile.
        let mut sent = 0..20;
        while sent.next().is_some() && stream.requests.send_data(list_services(), false).is_ok() {}
        unread.push((client, stream));
    };
    let is_refused = async || {
        let mut stream = reflect(&mut connect(&weir).await).await.expect("it is not refused");
        match stream.body.data().await.expect("a response or a reset") {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
                true
            }
        }
    };
    assert!(!is_refused().await);
    wait_until("the memory to be held", async || {
        start_unread().await;
        is_refused().await
    })
    .await;
    drop(unread);
    wait_until("the memory to be released", async || !is_refused().await).await;
}
