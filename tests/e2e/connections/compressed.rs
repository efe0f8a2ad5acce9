//! Requests that are compressed with gzip.

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::task::JoinSet;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A message with this flag and its prefix.
fn flagged(flag: u8, message: &[u8]) -> Bytes {
    let mut framed = framed(message).to_vec();
    framed[0] = flag;
    framed.into()
}

/// A request of a user, compressed.
fn compressed(user: &str) -> Bytes {
    flagged(1, &gzip(&request("shop", &[("user", user)]).encode_to_vec()))
}

fn encoded(encoding: &str) -> http::request::Builder {
    head().header("grpc-encoding", encoding)
}

#[tokio::test]
async fn gzip_is_accepted_and_answered_uncompressed() {
    let weir = setup().start();
    let mut client = connect(&weir).await;
    let whole = compressed("ann");
    let pieces: Vec<Bytes> = whole.chunks(3).map(Bytes::copy_from_slice).collect();
    let plain = [framed_request("ann")];
    for (parts, expected) in
        [(&[whole][..], Code::Ok), (&pieces, Code::Ok), (&plain, Code::OverLimit)]
    {
        let answer = send(&mut client, encoded("gzip"), parts).await.unwrap();
        assert_eq!(answer.status.as_deref(), Some("0"), "{}", answer.message);
        assert_eq!(answer.body[0], 0, "it is not compressed");
        let message = RateLimitResponse::decode(&answer.body[5..]).unwrap();
        assert_eq!(message.overall_code(), expected);
        if parts.len() == 1 && expected == Code::Ok {
            assert_eq!(answer.accepts.as_deref(), Some("gzip,identity"));
        }
    }
    let invalid = request("", &[("user", "ann")]).encode_to_vec();
    let answer = send(&mut client, encoded("gzip"), &[flagged(1, &gzip(&invalid))]).await.unwrap();
    assert_eq!(answer.message, "rate%20limit%20domain%20must%20not%20be%20empty");
}

#[tokio::test]
async fn other_encodings_and_damaged_messages_are_refused_with_the_reason() {
    let weir = setup().start();
    let mut client = connect(&weir).await;
    let good = compressed("ann");
    let twice = [gzip(b"a"), gzip(b"b")].concat();
    let bomb = flagged(1, &gzip(&vec![0; 20 << 20]));
    for (head, body, status, reason) in [
        (encoded("deflate"), good.clone(), "12", "unknown%20grpc-encoding"),
        (encoded("snappy"), good.clone(), "12", "unknown%20grpc-encoding"),
        (encoded("identity"), good.clone(), "13", "no%20grpc-encoding"),
        (head(), good.clone(), "13", "no%20grpc-encoding"),
        (encoded("gzip"), flagged(2, &good[5..]), "13", "neither%200%20nor%201"),
        (encoded("gzip"), flagged(1, b"no gzip"), "13", "cannot%20be%20decompressed"),
        (encoded("gzip"), flagged(1, &good[5..good.len() - 1]), "13", "cannot%20be"),
        (encoded("gzip"), flagged(1, &twice), "13", "bytes%20follow"),
        (encoded("gzip"), [&good[..], &[0]].concat().into(), "13", "exactly%20one"),
        (encoded("gzip"), bomb, "8", "grpc.max_message"),
    ] {
        let sent_encoding = head.headers_ref().unwrap().contains_key("grpc-encoding");
        let answer = send(&mut client, head, &[body]).await.unwrap();
        assert_eq!(answer.status.as_deref(), Some(status), "{}", answer.message);
        assert!(answer.message.contains(reason), "{reason}: {}", answer.message);
        assert_eq!(answer.accepts.as_deref(), sent_encoding.then_some("gzip,identity"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_inflated_counts_as_memory_of_clients() {
    // A connection gets 256 KiB.
    let weir = setup().env("WEIR__CLIENTS__MAX_BUFFERED", "1MiB").start();
    let mut client = connect(&weir).await;
    let message_of = |bytes: usize| compressed(&"x".repeat(bytes));
    let ask = async |client: &mut SendRequest<Bytes>, body| {
        let answer = send(client, encoded("gzip"), &[body]).await.unwrap();
        (answer.status.unwrap(), answer.message)
    };
    assert_eq!(ask(&mut client, message_of(100 << 10)).await.0, "0");
    let (status, reason) = ask(&mut client, message_of(600 << 10)).await;
    assert!(status == "8" && reason.contains("clients.max_buffered"), "{status} {reason}");
    // All is released, however the calls end: each inflates nearly what a connection gets.
    let calls = |client: SendRequest<Bytes>| {
        let mut calls = JoinSet::new();
        for i in 0..200 {
            let mut client = client.clone();
            calls.spawn(async move {
                let head = encoded("gzip").body(()).unwrap();
                client = client.ready().await.unwrap();
                let (response, mut stream) = client.send_request(head, false).unwrap();
                stream
                    .send_data(message_of(if i % 3 == 0 { 600 << 10 } else { 90 << 10 }), true)
                    .unwrap();
                if i % 2 == 0 {
                    stream.send_reset(h2::Reason::CANCEL);
                }
                drop(response.await);
            });
        }
        calls
    };
    calls(client.clone()).join_all().await;
    assert_eq!(ask(&mut client, message_of(100 << 10)).await.0, "0");
}
