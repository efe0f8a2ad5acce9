//! Memory that clients can hold.

use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;

use super::*;
use crate::support::api::descriptor;

/// A connection whose answers have this window.
async fn connect_with_window(weir: &Weir, window: u32) -> SendRequest<Bytes> {
    let socket = Socket::connect(weir.grpc).await.unwrap();
    let (client, connection) =
        h2::client::Builder::new().initial_window_size(window).handshake(socket).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

fn measure(weir: &Weir, what: &str, before: usize, n: usize) {
    std::thread::sleep(Duration::from_secs(2));
    let now = weir.resident_bytes();
    eprintln!(
        "{what}: {} KB a connection ({} -> {})",
        (now - before) / n / 1000,
        before >> 10,
        now >> 10
    );
}

#[tokio::test]
async fn reproduce_window() {
    let rules = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { name: abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz, unit: year, requests_per_unit: 2 }\n";
    let weir = serving(rules).env("WEIR__GRPC__TIMEOUT", "1h").start();
    // 998 bytes.
    let descriptors = (0..58).map(|i| descriptor(&[("user", &format!("{i:03}"))])).collect();
    let message = framed(
        &RateLimitRequest { domain: "shop".into(), descriptors, ..Default::default() }
            .encode_to_vec(),
    );
    eprintln!("request {}", message.len());
    let mut client = connect(&weir).await;
    let answer = send(&mut client, head(), &[message.clone()]).await.unwrap();
    eprintln!("answer {}", answer.body.len());
    let before = weir.resident_bytes();
    let mut kept = Vec::new();
    for _ in 0..10 {
        let mut client = connect_with_window(&weir, 0).await;
        for _ in 0..1000 {
            client = client.ready().await.unwrap();
            let (response, mut stream) =
                client.send_request(head().body(()).unwrap(), false).unwrap();
            stream.send_data(message.clone(), true).unwrap();
            kept.push((response, stream));
        }
        let (response, stream) = kept.pop().unwrap();
        response.await.unwrap();
        drop(stream);
        kept.push({
            let (response, mut stream) =
                client.send_request(head().body(()).unwrap(), false).unwrap();
            stream.send_data(message.clone(), true).unwrap();
            (response, stream)
        });
    }
    measure(&weir, "unread answers", before, 10);
}

#[tokio::test]
async fn reproduce_half() {
    for size in [0, 1, 100, 4000, 15900] {
        let weir = setup().env("WEIR__GRPC__TIMEOUT", "1h").start();
        let before = weir.resident_bytes();
        let mut kept = Vec::new();
        for _ in 0..10 {
            let mut client = connect(&weir).await;
            for _ in 0..1000 {
                client = client.ready().await.unwrap();
                let (response, mut stream) =
                    client.send_request(head().body(()).unwrap(), false).unwrap();
                if size > 0 {
                    stream.send_data(framed(&vec![0; 16000]).slice(..size), false).unwrap();
                }
                kept.push((response, stream));
            }
            let answer = send(&mut client, head(), &[asked("bob")]).await.unwrap();
            assert!(answer.status.is_some());
        }
        measure(&weir, &format!("half sent {size}"), before, 10);
    }
}
